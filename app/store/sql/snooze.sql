-- Hands claims back whose task said that it is too early: due again later, and no attempt is charged. Returns those that
-- still stood, with their job where their end was awaited.
with
gone as (
    delete from pgtick.running_executions r
    where r.claim_id = any (%(claims)s::int8[])
    returning r.*, width_bucket(r.claim_id, %(claims)s::int8[]) as n -- see complete.sql
),
over as materialized (
    select g.*, (%(due)s::float8[])[n] as due from gone g
),
waiting as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap, origin, errors)
    select job_id, scheduled_at, greatest(to_timestamp(due), (select from_at from pgtick.partition_windows where parent = 'pending_executions')), user_id, task_key, priority, attempt - 1, losses, suspect, overlap, origin, errors
    from over
    where cancel_requested_at is null and revoked_at is null
),
cancelled as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, worker_id, losses,
        origin, error, errors)
    select job_id, pgtick.kept_at('finished_executions', scheduled_at), user_id, task_key, 'CANCELLED', attempt - 1, due_at, clock_timestamp(), worker_id, losses, origin,
        errors -> -1 ->> 'error', errors
    from over
    where cancel_requested_at is not null or revoked_at is not null
)
select claim_id, case when awaited then job_id end from over
