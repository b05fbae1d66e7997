-- Which of these claims stand, but are locked by somebody else.
with
free as materialized (
    select claim_id from pgtick.running_executions where claim_id = any (%(claims)s::int8[]) for update skip locked
)
select r.claim_id
from pgtick.running_executions r
where r.claim_id = any (%(claims)s::int8[]) and r.claim_id <> all (select claim_id from free)
