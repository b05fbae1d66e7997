-- Ends claims whose run succeeded. Returns the claims that still stood, with their job where its end was awaited; an
-- outcome of any other came too late.
with
over as (
    delete from pgtick.running_executions r
    using unnest(%(claims)s::int8[], %(started)s::float8[], %(finished)s::float8[], %(results)s::text[]) as d (claim_id, started, finished, result)
    where r.claim_id = d.claim_id
    returning r.*, d.started, d.finished, d.result
),
stored as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, started_at, finished_at,
        worker_id, losses, origin, errors, result)
    select job_id, scheduled_at, user_id, task_key, 'COMPLETED', attempt, due_at, to_timestamp(started), to_timestamp(finished), worker_id,
        losses, origin, errors, result::jsonb
    from over
)
select claim_id, case when awaited then job_id end from over
