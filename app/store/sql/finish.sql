-- Ends claims for good as FAILED, CANCELLED or SKIPPED, keeping every error. Returns the claims that still stood.
-- An execution with a time that is no time (put in by hand) is kept under the time it was due.
with
gone as (
    delete from pgtick.running_executions r
    where r.claim_id = any (%(claims)s::int8[])
    returning r.*, width_bucket(r.claim_id, %(claims)s::int8[]) as n -- see complete.sql
),
over as materialized (
    select g.*, (%(statuses)s::text[])[n] as status, (%(started)s::float8[])[n] as started, (%(finished)s::float8[])[n] as finished,
           (%(errors)s::text[])[n] as error, (%(charged)s::bool[])[n] as charged
    from gone g
),
stored as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, started_at, finished_at,
        worker_id, losses, origin, error, errors)
    select job_id, case when isfinite(scheduled_at) then scheduled_at else due_at end, user_id, task_key, status, attempt - (not charged)::int,
        due_at, to_timestamp(started), to_timestamp(finished), worker_id, losses, origin, error::jsonb ->> 'error',
        coalesce(errors, '[]') || error::jsonb
    from over
)
select claim_id, case when awaited then job_id end from over
