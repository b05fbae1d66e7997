-- What people on call look at in psql. Each view reads the small tables, the statistics and the hours around now, never
-- history, so that it answers at once whatever was run before. A view about the rows of one table is <noun>_status;
-- none depends on another view, so that each can be rebuilt alone.

drop view if exists pgtick.overview, pgtick.late, pgtick.failing, pgtick.running, pgtick.stuck, pgtick.queue_status, pgtick.worker_status,
    pgtick.schedule_status, pgtick.lateness, pgtick.slo;

create or replace function pgtick.is_live(last_seen_at timestamptz) returns boolean
language sql stable parallel safe
return last_seen_at > now() - interval '1 minute';
comment on function pgtick.is_live is 'Whether a worker that was seen then counts as alive: they say so every PGTICK_RENEW_S.';

create or replace function pgtick.lateness_bounds() returns integer[]
language sql immutable parallel safe
return array[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 60000];
comment on function pgtick.lateness_bounds is 'Upper bounds in ms of the buckets of execution_stats.lateness; one more bucket holds what is later still.';

create or replace function pgtick.lateness_quantile(histogram bigint[], quantile double precision) returns double precision
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    with
    buckets as (
        select n, sum(n) over (order by i) as upto, coalesce((pgtick.lateness_bounds())[i - 1], 0) as lower_ms,
               coalesce((pgtick.lateness_bounds())[i], (pgtick.lateness_bounds())[i - 1]) as upper_ms
        from unnest(histogram) with ordinality as bucket (n, i)
    ),
    wanted as (
        select quantile * sum(n) as rank from buckets
    )
    select round((lower_ms + (upper_ms - lower_ms) * (rank - (upto - n)) / n)::numeric, 2)::float8
    from buckets, wanted
    where n > 0 and upto >= rank
    order by upto
    limit 1
$$;
comment on function pgtick.lateness_quantile is
    'A quantile of a lateness histogram in ms, as if each bucket were filled evenly; what lies beyond the last bound counts as that bound.';

create view pgtick.lateness as
select minute, started, pgtick.lateness_quantile(buckets, 0.5) as p50_ms, pgtick.lateness_quantile(buckets, 0.95) as p95_ms,
       pgtick.lateness_quantile(buckets, 0.99) as p99_ms,
       (select coalesce(sum(n), 0) from unnest(buckets) with ordinality as bucket (n, i)
        where i > array_position(pgtick.lateness_bounds(), 2000))::bigint as later_than_2s
from (
    -- A column for each bucket: a fifth of the work of unnesting every histogram.
    select minute, sum(started)::bigint as started,
           array[sum(lateness[1]), sum(lateness[2]), sum(lateness[3]), sum(lateness[4]), sum(lateness[5]), sum(lateness[6]), sum(lateness[7]), sum(lateness[8]),
                 sum(lateness[9]), sum(lateness[10]), sum(lateness[11]), sum(lateness[12]), sum(lateness[13]), sum(lateness[14]), sum(lateness[15])]::bigint[] as buckets
    from pgtick.execution_stats
    where minute > now() - interval '1 day'
    group by minute
) as minutes;
comment on view pgtick.lateness is 'How late executions started, by minute of the last day, from the stored histograms (some seconds behind).';
comment on column pgtick.lateness.p99_ms is 'Milliseconds between due_at and the start that 99 % of the starts did not exceed; interpolated within a bucket.';

create view pgtick.slo as
select date_trunc('hour', e.minute) as hour, t.task_id, sum(counts.started)::bigint as started, sum(counts.within)::bigint as within_2s,
       round(sum(counts.within)::numeric / nullif(sum(counts.started), 0), 6) as share
from pgtick.execution_stats e
left join pgtick.tasks t using (task_key)
cross join lateral (
    select sum(n) as started, coalesce(sum(n) filter (where i <= array_position(pgtick.lateness_bounds(), 2000)), 0) as within
    from unnest(e.lateness) with ordinality as bucket (n, i)
) as counts
where e.minute > now() - interval '7 days'
group by 1, 2;
comment on view pgtick.slo is 'Which share of starts came within 2 s of their time, by hour and task, for the last 7 days.';
comment on column pgtick.slo.share is 'within_2s / started, 1 is all of them.';

create view pgtick.running as
select r.job_id, r.scheduled_at, t.task_id, r.user_id, r.attempt, w.name as worker, r.worker_id,
       case when r.due_at > now() then 'waits for its time' when r.cancel_requested_at is not null then 'asked to stop' else 'runs' end as doing,
       now() - greatest(r.due_at, r.claimed_at) as running_for, r.lease_expires_at - now() as lease_left, r.progress, r.losses,
       pgtick.execution_id(r.scheduled_at, r.job_id) as execution_id, r.claim_id
from pgtick.running_executions r
left join pgtick.tasks t using (task_key)
left join pgtick.workers w using (worker_id);
comment on view pgtick.running is 'What workers hold right now: running, or claimed a little ahead of its time.';
comment on column pgtick.running.running_for is 'Since it was due and claimed; negative: claimed ahead, starts in so long.';
comment on column pgtick.running.lease_left is 'Workers renew every few seconds; negative: its worker is silent, and the janitor takes the execution back.';

create view pgtick.late as
select p.job_id, p.scheduled_at, t.task_id, p.user_id, p.due_at, now() - p.due_at as late_by, p.attempt, p.priority, t.queue, p.suspect,
       pgtick.execution_id(p.scheduled_at, p.job_id) as execution_id
from pgtick.pending_executions p
left join pgtick.tasks t using (task_key)
where p.due_at < now() - interval '2 seconds' and p.priority between 1 and 4;
comment on view pgtick.late is 'Due more than 2 s ago and not started, although neither a limit of its task nor a run of its own job holds it back. Why? select pgtick.explain(execution_id).';

create view pgtick.failing as
select t.task_id, s.started, s.failed, s.retried, round(s.failed::numeric / nullif(s.failed + s.completed, 0), 4) as failed_share,
       last.finished_at as last_failed_at, coalesce(last.error, retrying.error) as last_error,
       pgtick.execution_id(coalesce(last.scheduled_at, retrying.scheduled_at), coalesce(last.job_id, retrying.job_id)) as last_execution_id
from (
    select task_key, sum(started)::bigint as started, sum(completed)::bigint as completed, sum(failed)::bigint as failed, sum(retried)::bigint as retried
    from pgtick.execution_stats
    where minute > now() - interval '1 hour'
    group by task_key
    having sum(failed) + sum(retried) > 0
) as s
left join pgtick.tasks t using (task_key)
left join lateral (
    select f.finished_at, f.error, f.scheduled_at, f.job_id
    from pgtick.finished_executions f
    where f.status = 'FAILED' and f.task_key = s.task_key and f.scheduled_at > now() - interval '1 day' and f.scheduled_at < now() + interval '1 hour'
    order by f.scheduled_at desc
    limit 1
) as last on true
left join lateral (
    select e.errors -> -1 ->> 'error' as error, e.scheduled_at, e.job_id
    from pgtick.pending_executions e
    where last.job_id is null and e.task_key = s.task_key and e.attempt > 0 and e.due_at > now() - interval '1 hour' and e.due_at < now() + interval '1 hour'
    limit 1
) as retrying on true;
comment on view pgtick.failing is 'Tasks with failed attempts in the last hour, with the newest final failure of the last day, or else one that is being retried.';
comment on column pgtick.failing.failed is 'Executions that failed for good.';
comment on column pgtick.failing.retried is 'Attempts that failed and are tried again.';

create view pgtick.stuck as
select 'no worker' as kind, t.task_id, count(*) as executions, min(p.due_at) as since, (array_agg(p.job_id order by p.due_at))[1] as job_id,
       format('no live worker knows task %s: start one whose PGTICK_TASKS and PGTICK_QUEUES include it', coalesce(t.task_id, '#' || p.task_key)) as sentence
from pgtick.pending_executions p
left join pgtick.tasks t using (task_key)
where p.due_at < now() - interval '2 seconds'
  and not exists (select from pgtick.workers w where w.state = 'RUNNING' and pgtick.is_live(w.last_seen_at) and p.task_key = any (w.task_keys))
group by p.task_key, t.task_id
union all
select 'lost lease', t.task_id, count(*), min(r.lease_expires_at), (array_agg(r.job_id order by r.lease_expires_at))[1],
       'the leases are over and nobody took the executions back: no janitor comes round; look at the workers'
from pgtick.running_executions r
left join pgtick.tasks t using (task_key)
where r.lease_expires_at < now() - interval '1 minute'
group by t.task_id
union all
select 'blocked worker', null, w.running, w.blocked_since, null, 'a task blocks the event loop of worker ' || w.name || ': select * from pgtick.findings says what runs there'
from pgtick.workers w
where w.state in ('RUNNING', 'DRAINING') and pgtick.is_live(w.last_seen_at) and w.blocked_since is not null
union all
select 'broken schedule', t.task_id, 1, s.next_run_at, s.job_id, s.problem
from pgtick.schedules s
left join pgtick.tasks t using (task_key)
where s.problem is not null
union all
select 'not planned', t.task_id, count(*), min(s.next_run_at), (array_agg(s.job_id order by s.next_run_at))[1],
       'the next occurrence is past and was not made pending: no planner comes round; look at the workers'
from pgtick.schedules s
left join pgtick.tasks t using (task_key)
where s.next_run_at < now() - interval '1 minute' and s.paused_at is null and s.cancelled_at is null and s.problem is null
group by t.task_id;
comment on view pgtick.stuck is 'What will not go on by itself, and what to do about it. Empty when all is well.';
comment on column pgtick.stuck.since is 'Since when the oldest of them has been waiting.';
comment on column pgtick.stuck.job_id is 'The one that has been waiting longest, as an example.';

create view pgtick.queue_status as
select t.queue, count(*) as tasks, coalesce(sum(waiting.depth), 0)::bigint as depth, coalesce(sum(waiting.late), 0)::bigint as late,
       min(waiting.oldest) as oldest_due_at, now() - min(waiting.oldest) as oldest_age, coalesce(sum(held.running), 0)::bigint as running,
       round(coalesce(sum(rate.started), 0) / 60.0, 2) as starts_per_s,
       (select count(*) from pgtick.workers w
        where w.state = 'RUNNING' and pgtick.is_live(w.last_seen_at) and w.task_keys && array_agg(t.task_key)) as workers
from pgtick.tasks t
left join (
    select task_key, count(*) as depth, count(*) filter (where due_at < now() - interval '2 seconds' and priority between 1 and 4) as late,
           min(due_at) as oldest
    from pgtick.pending_executions
    where due_at <= now()
    group by task_key
) as waiting using (task_key)
left join (
    select task_key, count(*) as running from pgtick.running_executions group by task_key
) as held using (task_key)
left join (
    select task_key, sum(started) as started from pgtick.execution_stats
    where minute = date_trunc('minute', now()) - interval '1 minute'
    group by task_key
) as rate using (task_key)
group by t.queue;
comment on view pgtick.queue_status is 'Each queue: what waits, how long the oldest has, how fast it goes, and how many workers serve it.';
comment on column pgtick.queue_status.depth is 'Executions that are due and not started.';
comment on column pgtick.queue_status.starts_per_s is 'In the last full minute, as far as workers have stored it.';
comment on column pgtick.queue_status.workers is 'Live workers that know a task of the queue and serve it.';

create view pgtick.worker_status as
select w.worker_id, w.name,
       case when w.state in ('RUNNING', 'DRAINING') and not pgtick.is_live(w.last_seen_at) then 'SILENT'
            when w.state in ('RUNNING', 'DRAINING') and w.blocked_since is not null then 'BLOCKED' else w.state end as state,
       now() - w.last_seen_at as seen_ago, w.running, w.capacity, now() - w.started_at as up_for,
       w.drain_requested_at, array(select t.task_id from pgtick.tasks t where t.task_key = any (w.task_keys) order by 1) as tasks, w.queues, w.version
from pgtick.workers w
where w.state in ('RUNNING', 'DRAINING') or w.last_seen_at > now() - interval '1 day';
comment on view pgtick.worker_status is 'Worker processes that live, and those that ended within a day.';
comment on column pgtick.worker_status.state is 'RUNNING, DRAINING, STOPPED, LOST, SILENT: should be alive, and was not heard of for a minute, or BLOCKED: a task keeps its event loop from coming round.';
comment on column pgtick.worker_status.queues is 'The queues it was limited to; null: all.';

create view pgtick.schedule_status as
select s.job_id, t.task_id, s.user_id, coalesce(s.expression, 'once') as schedule, s.timezone,
       case when s.cancelled_at is not null then 'CANCELLED' when s.problem is not null then 'BROKEN' when s.paused_at is not null then 'PAUSED' when s.next_run_at is null then 'ENDED' else 'ACTIVE' end as state,
       s.next_run_at, s.next_run_at - now() as starts_in, s.next_run_at at time zone s.timezone as next_run_local, s.runs,
       coalesce(s.problem, s.paused_note) as note, s.planned_through
from pgtick.schedules s
left join pgtick.tasks t using (task_key);
comment on view pgtick.schedule_status is 'Recurring jobs and dates far ahead, with their next time.';
comment on column pgtick.schedule_status.next_run_at is 'The next occurrence that is not pending yet: those of the coming minute or so already are.';
comment on column pgtick.schedule_status.note is 'Why it is BROKEN, or the note it was paused with.';

create view pgtick.overview as
select now() as at, due.waiting, due.late, due.oldest_late, held.running, recent.starts_per_s, hour.completed as completed_1h, hour.failed as failed_1h,
       hour.retried as retried_1h, recent.p50_ms, recent.p99_ms, alive.workers, alive.capacity, standing.recurring, standing.paused, standing.broken,
       window_end.until_at as partitions_until, (select count(*) from pgtick.findings) as findings,
       (select count(*) from pgtick.tasks where paused_at is not null) as paused_tasks
from (
    select count(*) as waiting, count(*) filter (where due_at < now() - interval '2 seconds' and priority between 1 and 4) as late,
           now() - min(due_at) filter (where due_at < now() - interval '2 seconds' and priority between 1 and 4) as oldest_late
    from pgtick.pending_executions
    where due_at <= now()
) as due
cross join (
    select count(*) as running from pgtick.running_executions where due_at <= now()
) as held
cross join (
    select coalesce(sum(completed), 0)::bigint as completed, coalesce(sum(failed), 0)::bigint as failed, coalesce(sum(retried), 0)::bigint as retried
    from pgtick.execution_stats
    where minute > now() - interval '1 hour'
) as hour
cross join (
    select round((select coalesce(sum(started), 0) from pgtick.execution_stats where minute = date_trunc('minute', now()) - interval '1 minute') / 60.0, 2)
               as starts_per_s,
           pgtick.lateness_quantile(array_agg(n order by i), 0.5) as p50_ms, pgtick.lateness_quantile(array_agg(n order by i), 0.99) as p99_ms
    from (
        select bucket.i, sum(bucket.n)::bigint as n
        from pgtick.execution_stats e
        cross join unnest(e.lateness) with ordinality as bucket (n, i)
        where e.minute > now() - interval '5 minutes'
        group by bucket.i
    ) as buckets
) as recent
cross join (
    select count(*) as workers, coalesce(sum(capacity), 0)::bigint as capacity
    from pgtick.workers
    where state = 'RUNNING' and pgtick.is_live(last_seen_at)
) as alive
cross join (
    select count(*) filter (where expression is not null and paused_at is null and problem is null) as recurring,
           count(*) filter (where paused_at is not null and cancelled_at is null) as paused, count(*) filter (where problem is not null) as broken
    from pgtick.schedules
) as standing
cross join (
    select min(until_at) as until_at from pgtick.partition_windows
) as window_end;
comment on view pgtick.overview is 'One row that tells whether all is well; best read with \x.';
comment on column pgtick.overview.waiting is 'Executions that are due and not started.';
comment on column pgtick.overview.late is 'Those of them that have been due for more than 2 s, and that neither a limit of their task nor a run of their own job holds back.';
comment on column pgtick.overview.starts_per_s is 'In the last full minute, as far as workers have stored it.';
comment on column pgtick.overview.p99_ms is 'Lateness of starts in the last five minutes, ms.';
comment on column pgtick.overview.paused is 'Jobs that are paused.';
comment on column pgtick.overview.paused_tasks is 'Tasks that are paused: what is due of them waits, and is not late.';
comment on column pgtick.overview.partitions_until is 'No partitions have been made beyond this time; the janitor keeps it PGTICK_RUNWAY_HOURS ahead.';
comment on column pgtick.overview.findings is 'Rows in pgtick.findings: sentences on what to act on.';
