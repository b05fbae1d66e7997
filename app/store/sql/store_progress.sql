-- Keeps what running executions say of how far they are, without waiting for a row that somebody has locked.
with
here as materialized (
    select r.claim_id, d.progress
    from unnest(%(claims)s::int8[], %(progress)s::text[]) as d (claim_id, progress)
    join pgtick.running_executions r using (claim_id)
    for update of r skip locked
)
update pgtick.running_executions r
set progress = here.progress::jsonb
from here
where r.claim_id = here.claim_id
