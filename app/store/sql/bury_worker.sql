-- The process of this worker has died. What it had claimed ahead of its time goes back as if nothing had been: it cannot
-- have started. The leases of all else are over now, so that the janitors judge it. Returns how many of each.
with
ahead as (
    delete from pgtick.running_executions
    where worker_id = %(worker_id)s and due_at > now() and cancel_requested_at is null and revoked_at is null
    returning *
),
waiting as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, errors)
    select job_id, scheduled_at, due_at, user_id, task_key, priority, attempt - 1, losses, suspect, overlap, expires_at, origin, errors
    from ahead
),
begun as (
    update pgtick.running_executions set lease_expires_at = clock_timestamp()
    where worker_id = %(worker_id)s and not (due_at > now() and cancel_requested_at is null and revoked_at is null)
    returning claim_id
),
worker as (
    update pgtick.workers set state = 'LOST' where worker_id = %(worker_id)s and state in ('RUNNING', 'DRAINING')
)
select (select count(*)::int8 from ahead), (select count(*)::int8 from begun)
