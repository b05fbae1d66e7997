-- Why is it not running? One sentence for one execution or job.

create or replace function pgtick.in_words(span interval) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case
        when s < 1 then round(s * 1000) || ' ms'
        when s < 120 then round(s, 1) || ' s'
        when s < 7200 then round(s / 60) || ' min'
        when s < 172800 then round(s / 3600, 1) || ' h'
        else round(s / 86400) || ' days'
    end
    from (select abs(extract(epoch from span))) as span_s (s)
$$;
comment on function pgtick.in_words is 'A span of time as people say it: 250 ms, 12.5 s, 90 min, 3.0 h, 12 days.';

create or replace function pgtick.explain_waiting(p pgtick.pending_executions) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    task pgtick.tasks;
    late interval := clock_timestamp() - p.due_at;
    last_error text := p.errors -> -1 ->> 'error';
    live integer;
    knowing integer;
    draining integer;
    blocked integer;
    blocked_since timestamptz;
    capacity integer;
    taken integer;
    served text;
    seen timestamptz;
    ahead bigint;
    busy bigint;
    busy_of_key bigint;
begin
    select * into task from pgtick.tasks t where t.task_key = p.task_key;
    if p.due_at > clock_timestamp() and p.attempt > 0 then
        return format('It is RETRYING: attempt %s failed (%s), the next one comes at %s, in %s.', p.attempt, coalesce(last_error, 'no error was kept'),
            p.due_at, pgtick.in_words(late));
    elsif p.due_at > clock_timestamp() then
        return format('It is not due before %s, in %s.', p.due_at, pgtick.in_words(late));
    end if;
    if task.paused_at is not null then
        return format('Task %s is paused since %s%s; pgtick.resume_task continues it.', task.task_id, task.paused_at,
            coalesce(' (' || task.paused_note || ')', ''));
    end if;
    if p.overlap is not null and exists (select from pgtick.running_executions r where r.job_id = p.job_id) then
        return format('It waits for the run of the same job before it to end: runs of this job must not overlap (overlap: %s).', p.overlap);
    end if;
    -- Workers announce every few seconds what they know and how much they run; what they have claimed since is counted.
    select count(*) filter (where w.state = 'RUNNING'),
           count(*) filter (where w.state = 'RUNNING' and w.knows),
           count(*) filter (where w.state = 'DRAINING' and w.knows),
           count(w.blocked_since) filter (where w.state = 'RUNNING' and w.knows),
           max(w.blocked_since) filter (where w.state = 'RUNNING' and w.knows),
           sum(w.capacity) filter (where w.state = 'RUNNING' and w.knows and w.blocked_since is null),
           sum(w.taken) filter (where w.state = 'RUNNING' and w.knows and w.blocked_since is null),
           string_agg(distinct array_to_string(w.queues, ', '), ', ') filter (where w.state = 'RUNNING' and w.queues is not null),
           max(w.last_seen_at) filter (where w.state = 'RUNNING' and w.knows)
    into live, knowing, draining, blocked, blocked_since, capacity, taken, served, seen
    from (
        select w.state, w.queues, w.blocked_since, w.last_seen_at, p.task_key = any (w.task_keys) as knows,
               coalesce((w.pools -> task.pool ->> 'capacity')::integer, w.capacity) as capacity,
               greatest(coalesce((w.pools -> task.pool ->> 'taken')::integer, w.running), held.executions) as taken
        from pgtick.workers w
        left join (
            select r.worker_id, count(*) as executions
            from pgtick.running_executions r
            join pgtick.tasks t using (task_key)
            where t.pool = task.pool
            group by r.worker_id
        ) as held using (worker_id)
        where w.state in ('RUNNING', 'DRAINING') and pgtick.is_live(w.last_seen_at)
    ) as w;
    if live = 0 and draining = 0 then
        return format('No worker is alive: it has been due for %s; start a worker.', pgtick.in_words(late));
    elsif knowing = 0 and draining > 0 then
        return format('All workers that know task %s are draining: it has been due for %s; start a worker.', task.task_id, pgtick.in_words(late));
    elsif knowing = 0 and not exists (select from pgtick.workers w
            where w.state = 'RUNNING' and pgtick.is_live(w.last_seen_at) and (w.queues is null or task.queue = any (w.queues))) then
        return format('No live worker serves queue %s of task %s: they serve %s; add it to a worker''s PGTICK_QUEUES.', task.queue, task.task_id, served);
    elsif knowing = 0 then
        return format('No live worker knows task %s: start one whose PGTICK_TASKS names its module%s%s.', coalesce(task.task_id, '#' || p.task_key),
            case when task.kind = 'python' and task.target like '%:%' then ', ' || split_part(task.target, ':', 1) else '' end,
            case when served is not null then ', and that serves queue ' || task.queue else '' end);
    elsif seen < clock_timestamp() - interval '15 seconds' then
        return format('%s seen for %s: dead, hung, or cut off from the database. It has been due for %s; look there, or start a worker.',
            case knowing when 1 then 'The only worker that knows task ' || task.task_id || ' has not been'
                else 'None of the ' || knowing || ' workers that know task ' || task.task_id || ' has been' end,
            pgtick.in_words(clock_timestamp() - seen), pgtick.in_words(late));
    elsif blocked = knowing then
        return format('The event loop of %s has not come round for %s: a task blocks it. %s', case knowing when 1 then 'the worker that knows task ' ||
            task.task_id else 'all workers that know task ' || task.task_id end, pgtick.in_words(clock_timestamp() - blocked_since),
            'select * from pgtick.findings says what runs there.');
    elsif p.priority > 4 then
        -- Held back by the limits of its task until one of those that were let in has ended.
        select count(*), count(*) filter (where b.limit_key = p.limit_key) into busy, busy_of_key
        from (select r.limit_key from pgtick.running_executions r where r.task_key = p.task_key and r.limit_key is not null
              union all
              select o.limit_key from pgtick.pending_executions o
              where o.task_key = p.task_key and o.limit_key is not null and o.priority <= 4 and o.due_at < now() + interval '1 minute') as b (limit_key);
        if busy >= task.max_concurrent then
            return format('Task %s may run %s at once (max_concurrent), and so many do; it has been due for %s.', task.task_id, task.max_concurrent,
                pgtick.in_words(late));
        elsif busy_of_key >= task.max_per_key then
            return format('Task %s may run %s at once for each %s (max_per_key), and so many do for "%s"; it has been due for %s.', task.task_id,
                task.max_per_key, task.concurrency_key, p.limit_key, pgtick.in_words(late));
        elsif taken < capacity and task.rate_per_s is not null then
            return format('Task %s may start %s times a second (rate_per_s), and others are before this one; it has been due for %s.', task.task_id,
                task.rate_per_s, pgtick.in_words(late));
        elsif taken < capacity then
            return format('The limits of task %s have room for it: the next claim takes it.', task.task_id);
        end if;
    elsif late < interval '1 second' then
        return format('It is due since %s; the next claim takes it.', pgtick.in_words(late));
    end if;
    if taken >= capacity then
        select count(*) into ahead
        from (
            select from pgtick.pending_executions o
            where o.due_at <= clock_timestamp() and o.due_at > clock_timestamp() - interval '7 days' and o.task_key = p.task_key
              and (o.priority, o.due_at) < (p.priority, p.due_at)
            limit 100000
        ) as before;
        return format('All %s %s slots of the %s task %s are taken, and %s of it %s before this one; it has been due for %s. More workers would help, or a higher %s.',
            capacity, task.pool, case knowing when 1 then 'worker that knows' else knowing || ' workers that know' end, task.task_id,
            case ahead when 1 then '1 execution' else ahead || ' executions' end, case ahead when 1 then 'is' else 'are' end, pgtick.in_words(late),
            case task.pool when 'thread' then 'PGTICK_THREADS' when 'process' then 'PGTICK_PROCESSES' else 'PGTICK_CONCURRENCY' end);
    elsif p.suspect then
        return format('It waits to run alone in a child process, after it was lost with a worker %s times; it has been due for %s.', p.losses, pgtick.in_words(late));
    end if;
    return format('It has been due for %s, and workers with %s free slots know task %s: the next claim takes it, unless a transaction holds its row (see pg_stat_activity: idle in transaction).',
        pgtick.in_words(late), capacity - taken, task.task_id);
end $$;
comment on function pgtick.explain_waiting is 'The part of pgtick.explain() for a pending execution.';

create or replace function pgtick.explain(id text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    parts text[] := regexp_match(id, '^\s*(?:(-?\d{1,18})-)?([0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12})\s*$');
    job uuid := parts[2]::uuid;
    at timestamptz := '1970-01-01 00:00Z'::timestamptz + parts[1]::bigint * interval '1 microsecond';
    r record;
    p pgtick.pending_executions;
    f pgtick.finished_executions;
    s pgtick.schedules;
    j pgtick.jobs;
begin
    if parts is null then
        return format('"%s" is neither the id of an execution (<scheduled_at in µs>-<job_id>) nor of a job.', id);
    end if;
    select e.*, coalesce(w.name, '#' || e.worker_id) as worker, w.last_seen_at, w.blocked_since, coalesce(d.timeout_s, t.timeout_s) as timeout_s
    into r
    from pgtick.running_executions e
    left join pgtick.workers w using (worker_id)
    left join pgtick.tasks t using (task_key)
    left join pgtick.jobs d on d.job_id = job
    where e.job_id = job and (e.scheduled_at = at or at is null)
    order by e.scheduled_at limit 1;
    if found then
        return case
            when r.lease_expires_at < clock_timestamp() then
                format('Worker %s lost its lease %s ago and was last seen %s ago: the janitor hands the execution to another.', r.worker,
                    pgtick.in_words(clock_timestamp() - r.lease_expires_at), pgtick.in_words(clock_timestamp() - r.last_seen_at))
            when r.due_at > clock_timestamp() then
                format('Worker %s has claimed it ahead of its time and starts it at %s, in %s.', r.worker, r.due_at, pgtick.in_words(r.due_at - clock_timestamp()))
            when r.cancel_requested_at is not null then
                format('It runs on worker %s and was asked to stop %s ago.', r.worker, pgtick.in_words(clock_timestamp() - r.cancel_requested_at))
            else
                format('It is running: attempt %s on worker %s for %s, lease until %s.%s', r.attempt, r.worker,
                    pgtick.in_words(clock_timestamp() - greatest(r.due_at, r.claimed_at)), r.lease_expires_at,
                    case when r.last_seen_at < clock_timestamp() - interval '15 seconds' then format(' That worker has not been seen for %s: %s',
                        pgtick.in_words(clock_timestamp() - r.last_seen_at), 'when its lease is over, another one takes it.')
                    when r.blocked_since is not null then format(' The event loop of that worker has not come round for %s: a task blocks it.',
                        pgtick.in_words(clock_timestamp() - r.blocked_since))
                    when r.timeout_s is null and r.claimed_at < clock_timestamp() - interval '1 minute' then
                        ' It has no timeout; pgtick.cancel_execution stops it.' else '' end)
        end;
    end if;
    select e.* into p from pgtick.pending_executions e where e.job_id = job and (e.scheduled_at = at or at is null) order by e.due_at limit 1;
    if found then
        return pgtick.explain_waiting(p);
    end if;
    select * into s from pgtick.schedules e where e.job_id = job;
    if found and (at is null or (at >= s.next_run_at or s.next_run_at is null) and at <> all (coalesce(s.skips, '{}'))) then
        if s.cancelled_at is not null then
            return format('Its job was cancelled at %s.', s.cancelled_at);
        elsif s.problem is not null then
            return format('Its schedule is broken and makes no occurrences: %s', s.problem);
        elsif s.paused_at is not null then
            return format('Its job is paused since %s%s; pgtick.resume_job continues it.', s.paused_at, coalesce(' (' || s.paused_note || ')', ''));
        elsif s.next_run_at < clock_timestamp() - interval '10 seconds' then
            return format('Its occurrence of %s should be pending since %s: no planner comes round, look at the workers.', s.next_run_at,
                pgtick.in_words(clock_timestamp() - s.next_run_at));
        elsif s.next_run_at is not null and (at is null or at = s.next_run_at) then
            return format('It is planned for %s, in %s; workers get it shortly before.', s.next_run_at, pgtick.in_words(s.next_run_at - clock_timestamp()));
        elsif s.next_run_at is not null then
            return format('It is no occurrence that is known yet: the next of its job comes at %s.', s.next_run_at);
        end if;
    end if;
    if at is null then
        select e.* into f from pgtick.finished_executions e where e.job_id = job order by e.scheduled_at desc limit 1;
    else
        select e.* into f from pgtick.finished_executions e where e.job_id = job and e.scheduled_at = at;
    end if;
    if found then
        return case f.status
            when 'COMPLETED' then format('It is COMPLETED since %s (attempt %s, started %s after its time).', f.finished_at, f.attempt,
                pgtick.in_words(f.started_at - f.due_at))
            when 'FAILED' then format('It FAILED for good at %s after %s: %s. pgtick.retry_failed starts it anew.', f.finished_at,
                case f.attempt when 1 then '1 attempt' else f.attempt || ' attempts' end, coalesce(f.error, 'no error was kept'))
            when 'CANCELLED' then format('It was CANCELLED at %s%s.', f.finished_at, coalesce(': ' || f.error, ''))
            else format('It was SKIPPED at %s: %s%s.', f.finished_at, coalesce(f.error, 'no reason was kept'),
                case when f.skipped > 1 then ' (' || f.skipped || ' occurrences)' else '' end)
        end;
    end if;
    if at = any (s.skips) then
        return 'It is SKIPPED: its job leaves it out, as it was asked to by hand.';
    end if;
    select * into j from pgtick.jobs e where e.job_id = job;
    if not found then
        return format('There is no job %s, and no execution of it: the id is wrong, or it is older than the retention.', job);
    elsif j.cancelled_at is not null then
        return format('Its job was cancelled at %s.', j.cancelled_at);
    elsif at is not null then
        return format('Job %s has no execution at %s: the time is no occurrence of it, or longer ago than the retention.', job, at);
    end if;
    return format('Job %s has nothing left to run.', job);
end $$;
comment on function pgtick.explain is 'Why is it not running? One sentence about an execution id, or about a job id (what runs or comes next).';
