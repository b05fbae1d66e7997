-- Sends failed attempts back to wait for their next one. Returns the claims that still stood.
with
over as (
    delete from pgtick.running_executions r
    using unnest(%(claims)s::int8[], %(due)s::float8[], %(errors)s::text[]) as d (claim_id, due, error)
    where r.claim_id = d.claim_id
    returning r.*, d.due, d.error
),
waiting as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, errors)
    select job_id, scheduled_at, to_timestamp(due), user_id, task_key, priority, attempt, losses, suspect, overlap, expires_at, origin,
        coalesce(errors || error::jsonb, jsonb_build_array(error::jsonb))
    from over
)
select claim_id from over
