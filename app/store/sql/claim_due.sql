-- Takes up to n executions that come due before `until`, of tasks this worker knows, and puts them among the running.
-- `queries.claim_due` says what {pending} and {within_bounds} stand for.
with
-- The first n by priority (1 first), then time; rows that another worker is just taking are skipped.
due as materialized (
    select found.tid, found.part, row_number() over () as place
    from unnest(array[1, 2, 3, 4]::smallint[], %(floors)s::timestamptz[]) as lane (priority, floor)
    cross join lateral (
        select p.ctid as tid, p.tableoid as part
        from {pending} p
        where p.priority = lane.priority and p.due_at >= lane.floor and p.due_at >= %(floor)s::timestamptz
          and p.due_at < %(until)s::timestamptz and p.task_key = any (%(task_keys)s::int4[])
        order by p.due_at
        limit %(n)s
        for update skip locked
    ) as found
    limit %(n)s
),
gone as (
    delete from {pending} p
    using due
    where p.tableoid = due.part and p.ctid = due.tid{within_bounds}
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
-- The others run one at a time. A function of its own, because most claims have none and need not be planned for them.
-- Those kept out by a run of their job are told, too, under no claim.
taken as (
    select * from free
    union all
    select * from pgtick.claim_alone(
        array(select claim_id from gone where overlap is not null),
        array(select (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap, expires_at, origin, limit_key,
                      errors)::pgtick.pending_executions
              from gone where overlap is not null),
        %(worker_id)s, %(lease)s::interval)
    where exists (select from gone where overlap is not null)
)
-- What the jobs are to do is read by a statement of its own: planning a join with all days of jobs costs more than it.
-- Of a few, it comes along.
select claim_id, taken.job_id::text, extract(epoch from due_at)::float8,
       case when isfinite(scheduled_at) then (extract(epoch from scheduled_at) * 1000000)::int8 end,
       task_key, ((priority - 1) %% 4 + 1)::int2, attempt, losses, suspect, extract(epoch from expires_at)::float8, user_id,
       job.parameters, job.max_retries, job.timeout_s, job.trace
from taken
left join lateral pgtick.job_to_do(case when (select count(*) from taken) <= %(few)s then taken.job_id end) as job on true
order by 3
