-- Takes up to n executions that come due before `until`, of tasks this worker knows, and puts them among the running.
with
-- The first n by priority (1 first), then time; rows that another worker is just taking are skipped.
due as materialized (
    select found.tid, found.part, row_number() over () as place
    from unnest(array[1, 2, 3, 4]::smallint[], %(floors)s::timestamptz[]) as lane (priority, floor)
    cross join lateral (
        select p.ctid as tid, p.tableoid as part
        from pgtick.pending_executions p
        where p.priority = lane.priority and p.due_at >= lane.floor and p.due_at >= %(floor)s and p.due_at < %(until)s and p.task_key = any (%(task_keys)s)
        order by p.due_at
        limit %(n)s
        for update skip locked
    ) as found
    limit %(n)s
),
gone as (
    delete from pgtick.pending_executions p
    using due
    where p.tableoid = due.part and p.ctid = due.tid and p.due_at >= %(floor)s and p.due_at < %(until)s
    returning p.*, %(first_claim)s + due.place as claim_id
),
-- Executions of jobs whose runs may overlap.
free as (
    insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, expires_at,
        origin, worker_id, lease_expires_at, errors)
    select claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority, attempt + 1, losses, suspect, expires_at, origin, %(worker_id)s,
        clock_timestamp() + %(lease)s, errors
    from gone
    where overlap is null
    returning claim_id, job_id, scheduled_at, due_at, task_key, priority, attempt, losses, suspect, expires_at, user_id
),
-- One run at a time of the others: the unique index lets only one in.
alone as (
    insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, worker_id, lease_expires_at, errors)
    select claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority, attempt + 1, losses, suspect, overlap, expires_at, origin,
        %(worker_id)s, clock_timestamp() + %(lease)s, errors
    from gone
    where overlap is not null
    order by due_at
    on conflict (job_id) where overlap is not null do nothing
    returning claim_id, job_id, scheduled_at, due_at, task_key, priority, attempt, losses, suspect, expires_at, user_id
),
-- A run of the same job is not over. An occurrence that is due is left out; what must or can wait goes back.
kept_out as (
    select g.*, g.overlap = 'skip' and g.attempt = 0 and g.due_at <= clock_timestamp() as left_out
    from gone g
    where g.overlap is not null
      and not exists (select from alone a where a.job_id = g.job_id and a.scheduled_at = g.scheduled_at)
),
skipped as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, origin, error)
    select job_id, scheduled_at, user_id, task_key, 'SKIPPED', attempt, due_at, clock_timestamp(), origin, 'the run before it was not over (overlap: skip)'
    from kept_out
    where left_out
    on conflict do nothing
),
put_back as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, errors)
    select job_id, scheduled_at, greatest(due_at, clock_timestamp() + interval '0.5 s'), user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, errors
    from kept_out
    where not left_out
),
mine as (
    select * from free union all select * from alone
)
-- Parameters as text: the worker decodes them row by row, so that one unreadable row cannot spoil the batch.
select mine.claim_id, mine.job_id, extract(epoch from mine.due_at)::float8,
       case when isfinite(mine.scheduled_at) then (extract(epoch from mine.scheduled_at) * 1000000)::int8 end,
       mine.task_key, mine.priority, mine.attempt, mine.losses, mine.suspect, extract(epoch from mine.expires_at)::float8, mine.user_id,
       jobs.parameters::text, jobs.max_retries, jobs.timeout_s
from mine
left join pgtick.jobs using (job_id)
order by 3
