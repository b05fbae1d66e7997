-- Takes up to n executions that come due before `until`, of tasks this worker knows, and puts them among the running.
with
-- The first n by priority (1 first), then time; rows that another worker is just taking are skipped.
due as materialized (
    select found.tid, found.part, row_number() over () as place
    from unnest(array[1, 2, 3, 4]::smallint[], %(floors)s::timestamptz[]) as lane (priority, floor)
    cross join lateral (
        select p.ctid as tid, p.tableoid as part
        from pgtick.pending_executions p
        where p.priority = lane.priority and p.due_at >= lane.floor and p.due_at >= %(floor)s::timestamptz and p.due_at < %(until)s::timestamptz and p.task_key = any (%(task_keys)s::int4[])
        order by p.due_at
        limit %(n)s
        for update skip locked
    ) as found
    limit %(n)s
),
gone as (
    delete from pgtick.pending_executions p
    using due
    where p.tableoid = due.part and p.ctid = due.tid and p.due_at >= %(floor)s::timestamptz and p.due_at < %(until)s::timestamptz
    returning p.*, %(first_claim)s + due.place as claim_id
),
-- Executions of jobs whose runs may overlap. What a limit let in has its own priority again, to be held when it comes back.
free as (
    insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, expires_at,
        origin, worker_id, lease_expires_at, limit_key, errors)
    select claim_id, job_id, scheduled_at, due_at, user_id, task_key, case when limit_key is null then priority else priority + 4 end, attempt + 1,
        losses, suspect, expires_at, origin, %(worker_id)s, clock_timestamp() + %(lease)s::interval, limit_key, errors
    from gone
    where overlap is null
    returning claim_id, job_id, scheduled_at, due_at, task_key, priority, attempt, losses, suspect, expires_at, user_id
),
-- One run at a time of the others: the unique index lets only one in, and what came too late to start keeps out of it.
-- Behind one whose turn has come there may be more.
alone as (
    insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, worker_id, lease_expires_at, awaited, limit_key, errors)
    select claim_id, job_id, scheduled_at, due_at, user_id, task_key, case when limit_key is null then priority else priority + 4 end, attempt + 1,
        losses, suspect, overlap, expires_at, origin, %(worker_id)s, clock_timestamp() + %(lease)s::interval, overlap = 'wait', limit_key, errors
    from gone
    where overlap is not null and (expires_at is null or expires_at > clock_timestamp() or attempt + losses > 0)
    order by due_at
    on conflict (job_id) where overlap is not null do nothing
    returning claim_id, job_id, scheduled_at, due_at, task_key, priority, attempt, losses, suspect, expires_at, user_id
),
-- A run of the same job is not over. What is not due yet goes back and is tried again; what is waits out of sight of
-- claims (negative priority), and pgtick.settle_waiting sees to it.
kept_out as (
    select g.*, g.due_at <= clock_timestamp() as waits
    from gone g
    where g.overlap is not null
      and not exists (select from alone a where a.job_id = g.job_id and a.scheduled_at = g.scheduled_at)
),
put_back as (
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
        expires_at, origin, limit_key, errors)
    select job_id, scheduled_at, due_at, user_id, task_key, case when waits then -priority else priority end, attempt, losses, suspect, overlap,
        expires_at, origin, limit_key, errors
    from kept_out
),
-- Those kept out are told, too, under no claim: 0 for those that wait, -1 for those that went back.
taken as (
    select * from free
    union all
    select * from alone
    union all
    select case when waits then 0 else -1 end, job_id, scheduled_at, due_at, task_key, priority, attempt, losses, suspect, expires_at, user_id
    from kept_out
)
-- What the jobs are to do is read by a statement of its own: planning a join with all days of jobs costs more than it.
-- Of a few, it comes along.
select claim_id, taken.job_id::text, extract(epoch from due_at)::float8,
       case when isfinite(scheduled_at) then (extract(epoch from scheduled_at) * 1000000)::int8 end,
       task_key, ((priority - 1) %% 4 + 1)::int2, attempt, losses, suspect, extract(epoch from expires_at)::float8, user_id,
       job.parameters, job.max_retries, job.timeout_s
from taken
left join lateral pgtick.job_to_do(case when (select count(*) from taken) <= %(few)s then taken.job_id end) as job on true
order by 3
