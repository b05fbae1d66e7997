-- Sends failed attempts back to wait for their next one, unless they were cancelled meanwhile. Returns the claims that
-- still stood.
with
gone as (
    delete from pgtick.running_executions r
    where r.claim_id = any (%(claims)s::int8[])
    returning r.*, width_bucket(r.claim_id, %(claims)s::int8[]) as n -- see complete.sql
),
over as materialized (
    select g.*, (%(due)s::float8[])[n] as due, (%(errors)s::text[])[n] as error from gone g
),
waiting as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, errors)
    select job_id, scheduled_at,
        greatest(to_timestamp(due), (select from_at from pgtick.partition_windows where parent = 'pending_executions')),
        user_id, task_key, priority, attempt, losses, suspect, overlap, expires_at, origin,
        coalesce(errors, '[]') || error::jsonb
    from over
    where cancel_requested_at is null and revoked_at is null
),
cancelled as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, started_at, finished_at,
        worker_id, losses, origin, error, errors)
    select job_id, pgtick.kept_at('finished_executions', scheduled_at), user_id, task_key, 'CANCELLED', attempt, due_at,
        greatest(due_at, claimed_at), clock_timestamp(), worker_id, losses, origin, error::jsonb ->> 'error', coalesce(errors, '[]') || error::jsonb
    from over
    where cancel_requested_at is not null or revoked_at is not null
)
select claim_id, case when awaited then job_id end from over
