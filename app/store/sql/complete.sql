-- Ends claims whose run succeeded. Returns the claims that still stood, with their job where its end was awaited; an
-- outcome of any other came too late.
with
over as (
    -- By the index, whatever statistics say; joined with the list, a table that was empty when it was analyzed is gone
    -- through for each of its rows. The claims come in order, so that a place in the list is found by halving it.
    delete from pgtick.running_executions r
    where r.claim_id = any (%(claims)s::int8[])
    returning r.*, width_bucket(r.claim_id, %(claims)s::int8[]) as n
),
stored as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, started_at, finished_at,
        worker_id, losses, origin, errors, result)
    select job_id, scheduled_at, user_id, task_key, 'COMPLETED', attempt, due_at, to_timestamp((%(started)s::float8[])[n]),
        to_timestamp((%(finished)s::float8[])[n]), worker_id, losses, origin, errors, (%(results)s::text[])[n]::jsonb
    from over
)
select claim_id, case when awaited then job_id end from over
