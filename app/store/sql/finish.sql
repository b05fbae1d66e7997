-- Ends claims for good as FAILED, CANCELLED or SKIPPED, keeping every error. Returns the claims that still stood.
-- An execution with a time that is no time (put in by hand) is kept under the time it was due.
with
over as (
    delete from pgtick.running_executions r
    using unnest(%(claims)s::int8[], %(statuses)s::text[], %(started)s::float8[], %(finished)s::float8[], %(errors)s::text[], %(charged)s::bool[])
        as d (claim_id, status, started, finished, error, charged)
    where r.claim_id = d.claim_id
    returning r.*, d.status, d.started, d.finished, d.error, d.charged
),
stored as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, started_at, finished_at,
        worker_id, losses, origin, error, errors)
    select job_id, case when isfinite(scheduled_at) then scheduled_at else due_at end, user_id, task_key, status, attempt - (not charged)::int, due_at, to_timestamp(started), to_timestamp(finished),
        worker_id, losses, origin, coalesce(error::jsonb ->> 'error', errors -> -1 ->> 'error'), coalesce(errors || error::jsonb, errors, jsonb_build_array(error::jsonb))
    from over
)
select claim_id, case when awaited then job_id end from over
