-- Hands claims back without charging an attempt: their run did not happen or was stopped by us, or the task itself put it
-- off, to the time in `due`. What may have started in time has no deadline any more, and what was due in an hour that is
-- gone waits in the oldest there is. Returns those that still stood, with their job where their end was awaited.
with
gone as (
    delete from pgtick.running_executions r
    where r.claim_id = any (%(claims)s::int8[])
    returning r.*, width_bucket(r.claim_id, %(claims)s::int8[]) as n -- see complete.sql
),
over as materialized (
    select g.*, (%(due)s::float8[])[n] as put_off_to from gone g
),
waiting as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, errors)
    select job_id, scheduled_at,
        greatest(coalesce(to_timestamp(put_off_to), due_at), (select from_at from pgtick.partition_windows where parent = 'pending_executions')),
        user_id, task_key, priority, attempt - 1, losses, suspect, overlap,
        case when put_off_to is null and due_at > clock_timestamp() then expires_at end, origin, errors
    from over
    where cancel_requested_at is null and revoked_at is null
),
cancelled as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, worker_id, losses,
        origin, error, errors)
    select job_id, pgtick.kept_at('finished_executions', scheduled_at), user_id, task_key, 'CANCELLED', attempt - 1, due_at, clock_timestamp(), worker_id,
        losses, origin, errors -> -1 ->> 'error', errors
    from over
    where cancel_requested_at is not null or revoked_at is not null
)
select claim_id, case when awaited then job_id end from over
