-- Hands claims back whose run did not happen or was stopped by us: no attempt is charged. Returns those that still stood.
with
over as (
    delete from pgtick.running_executions r
    where r.claim_id = any (%(claims)s::int8[])
    returning r.*
),
waiting as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, errors)
    select job_id, scheduled_at, due_at, user_id, task_key, priority, attempt - 1, losses, suspect, overlap, expires_at, origin, errors
    from over
)
select claim_id from over
