-- Takes executions back from claims whose lease is over. The first loss is not charged, but makes the execution a suspect
-- that runs alone from now on; a loss of a suspect is its own doing and charged; without attempts left it has failed.
-- While the server was down nobody could renew: after its start all get the time to (one that started in the future had a
-- wrong clock then). Of all claims, or of one.
with
expired as materialized (
    select claim_id from pgtick.running_executions
    where lease_expires_at < clock_timestamp()
      and pg_postmaster_start_time() not between clock_timestamp() - %(grace)s and clock_timestamp()
      and claim_id = coalesce(%(only)s::int8, claim_id)
    limit %(n)s
    for update skip locked
),
lost as (
    delete from pgtick.running_executions r
    where r.claim_id = any (array(select claim_id from expired)) and r.lease_expires_at < clock_timestamp()
    returning r.*
),
judged as (
    select l.*, l.attempt - (not l.suspect)::int as charged_attempt,
           coalesce(l.errors, '[]') || jsonb_build_object('attempt', l.attempt, 'at', clock_timestamp(), 'worker_id', l.worker_id,
               'charged', l.suspect,
               'error', case when l.suspect then 'lease lost while running alone: the worker died or hung'
                             else 'lease lost: the worker died or hung' end) as all_errors,
           l.suspect and l.attempt > coalesce(j.max_retries, t.max_retries, 3) as failed
    from lost l
    left join pgtick.jobs j on j.job_id = l.job_id
    left join pgtick.tasks t on t.task_key = l.task_key
),
waiting as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, errors)
    select job_id, scheduled_at, clock_timestamp(), user_id, task_key, priority, charged_attempt, least(losses + 1, 32000), true, overlap,
        expires_at, origin, all_errors
    from judged
    where not failed and cancel_requested_at is null and revoked_at is null
),
over as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, worker_id, losses, origin,
        error, errors)
    select job_id, pgtick.kept_at('finished_executions', case when isfinite(scheduled_at) then scheduled_at else due_at end), user_id,
        task_key, case when cancel_requested_at is null and revoked_at is null then 'FAILED' else 'CANCELLED' end, charged_attempt, due_at,
        clock_timestamp(), worker_id, least(losses + 1, 32000), origin, all_errors -> -1 ->> 'error', all_errors
    from judged
    where failed or cancel_requested_at is not null or revoked_at is not null
    on conflict do nothing
)
select worker_id, count(*)::int8, (array_agg(claim_id order by claim_id))[1:5] from lost group by worker_id
