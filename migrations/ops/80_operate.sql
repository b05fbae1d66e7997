-- What people on call do by hand: retry in bulk, move, pause a task, drain, look ahead.

create or replace function pgtick.retry_failed(task_id text default null, user_id text default null, error text default null,
    since timestamptz default now() - interval '1 day', until timestamptz default now(), max_count integer default 1000) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    key integer;
    wanted pgtick.operations;
    failed record;
    started integer := 0;
    at timestamptz := clock_timestamp();
begin
    if max_count is null or max_count not between 1 and 100000 then
        raise exception 'max_count: must be 1 to 100000, not %', coalesce(max_count::text, 'null') using errcode = 'invalid_parameter_value';
    elsif since is null or until is null or since >= until then
        raise exception 'since: must be before until' using errcode = 'invalid_parameter_value';
    elsif retry_failed.task_id is not null then
        select t.task_key into key from pgtick.tasks t where t.task_id = retry_failed.task_id;
        if not found then
            raise exception 'task_id: no task "%" is registered', retry_failed.task_id using errcode = 'invalid_parameter_value';
        end if;
    end if;
    wanted.action := 'rerun';
    wanted.created_at := at;
    wanted.filter := jsonb_build_object('task_key', key, 'user_id', user_id, 'error', error, 'statuses', array['FAILED'], 'start_time', since,
        'end_time', until);
    for failed in
        select m.job_id, pgtick.execution_id(m.scheduled_at, m.job_id) as execution_id from pgtick.matching(wanted, max_count) m
    loop
        -- A final row stays as it is: the retry is an execution of its own, at a time of its own.
        perform pgtick.start_anew(pgtick.job_named(failed.job_id), at + started * interval '1 microsecond', 'retry of ' || failed.execution_id);
        started := started + 1;
    end loop;
    perform pgtick.audit('retry_failed', coalesce(retry_failed.task_id, 'all tasks'), jsonb_strip_nulls(jsonb_build_object('user_id', retry_failed.user_id,
        'error', retry_failed.error, 'since', since, 'until', until, 'max_count', max_count, 'started', started)));
    if started > 0 then
        perform pgtick.tell_due(at);
    end if;
    return started;
end $$;
comment on function pgtick.retry_failed is
    'Starts FAILED executions anew, those that were scheduled in [since, until) and match: task_id, user_id, a part of the error. The old ones stay FAILED; none is retried twice. Returns how many.';

create or replace function pgtick.reschedule(job_id uuid, at timestamptz) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.lock_job(job_id);
    target constant timestamptz := greatest(at, now());
begin
    if job.schedule_type = 'CRON' then
        raise exception 'job_id: job % recurs; its times come from its expression', job_id using errcode = 'object_not_in_prerequisite_state';
    elsif at is null or not isfinite(at) or at > now() + interval '10 years' then
        raise exception 'at: must be a time within 10 years, not %', coalesce(at::text, 'null') using errcode = 'invalid_parameter_value';
    end if;
    perform pgtick.edit_job(job_id, jsonb_build_object('schedule', to_char(target at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), 'reschedule');
    return pgtick.execution_id((select s.next_run_at from pgtick.schedules s where s.job_id = reschedule.job_id), job_id);
end $$;
comment on function pgtick.reschedule is 'Moves a job that runs once, and has not started, to another time (now, when that is past). Returns the id of its execution.';

create or replace function pgtick.pause_task(task_id text, note text default null) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    task pgtick.tasks := pgtick.task_named(task_id);
    held integer;
begin
    -- What its limits are just letting in is in by then, and is held.
    perform pg_advisory_xact_lock(7067849, task.task_key);
    update pgtick.tasks t
    set paused_at = coalesce(t.paused_at, clock_timestamp()), paused_note = coalesce(note, t.paused_note),
        priority = (t.priority - 1) % 4 + 5
    where t.task_key = task.task_key;
    -- Twice: what is claimed, or comes back, while the first looks is in the other table by then, or in another place.
    for look in 1..2 loop
        -- What its limits have let in, and nobody has claimed, is not to start either.
        update pgtick.pending_executions p
        set priority = p.priority + 4 * sign(p.priority), limit_key = case when task.concurrency_key is not null then p.limit_key end
        where p.task_key = task.task_key and p.priority between -4 and 4 and p.limit_key is not null;
        perform pgtick.apply_limits(array[task.task_key]);
    end loop;
    select count(*) into held from pgtick.pending_executions p where p.task_key = task.task_key and p.priority > 4 and p.due_at <= clock_timestamp();
    perform pgtick.audit('pause_task', task.task_id, jsonb_strip_nulls(jsonb_build_object('note', note, 'held', held)));
    return held;
end $$;
comment on function pgtick.pause_task is
    'Holds back all executions of a task, until it is resumed: what is due meanwhile waits, jobs can be posted. What runs, or was claimed a moment ahead, goes on. Returns how many are due and held.';

create or replace function pgtick.resume_task(task_id text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    task pgtick.tasks := pgtick.task_named(task_id);
    earliest timestamptz;
begin
    update pgtick.tasks t
    set paused_at = null, paused_note = null,
        priority = case when (t.max_concurrent, t.max_per_key, t.rate_per_s) is null then (t.priority - 1) % 4 + 1 else t.priority end
    where t.task_key = task.task_key and t.paused_at is not null;
    if not found then
        return false;
    end if;
    select min(p.due_at) into earliest from pgtick.pending_executions p where p.task_key = task.task_key and p.priority > 4;
    perform pgtick.apply_limits(array[task.task_key]);
    perform pgtick.tell_due(coalesce(earliest, clock_timestamp()));
    perform pgtick.audit('resume_task', task.task_id);
    return true;
end $$;
comment on function pgtick.resume_task is 'Lets a paused task go on: what waited starts now, as fast as slots and limits allow. Returns whether it was paused.';

create or replace function pgtick.drain_worker(worker text) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    drained bigint[];
begin
    with
    asked as (
        update pgtick.workers w set drain_requested_at = coalesce(w.drain_requested_at, now())
        where (w.name = worker or w.worker_id::text = worker or starts_with(w.name, worker || ':'))
          and w.state in ('RUNNING', 'DRAINING')
        returning w.worker_id
    )
    select array_agg(a.worker_id order by a.worker_id) into drained from asked a;
    if drained is null then
        raise exception 'worker: no worker "%" is alive; see pgtick.worker_status', worker using errcode = 'no_data_found';
    end if;
    perform pgtick.audit('drain_worker', worker, jsonb_build_object('worker_ids', drained));
    return cardinality(drained);
end $$;
comment on function pgtick.drain_worker is
    'Asks workers to finish what they run, claim nothing more, and end: by worker_id, by name (host:pid), or all of a host. Returns how many.';

create or replace function pgtick.next_runs(job_id uuid default null, max_count integer default 20)
returns table (scheduled_at timestamptz, starts_in interval, job uuid, task_id text, state text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select n.at, n.at - now(), n.job_id, t.task_id, n.state
    from (
        (select p.due_at as at, p.job_id, p.task_key, case when p.attempt = 0 then 'PENDING' else 'RETRYING' end as state
         from pgtick.pending_executions p
         where p.due_at > now() and (next_runs.job_id is null or p.job_id = next_runs.job_id)
         order by p.due_at limit max_count)
        union all
        (select s.next_run_at, s.job_id, s.task_key, 'PLANNED'
         from pgtick.schedules s
         where s.next_run_at is not null and s.paused_at is null and s.cancelled_at is null and s.problem is null
           and (next_runs.job_id is null or s.job_id = next_runs.job_id)
         order by s.next_run_at limit max_count)
    ) as n
    left join pgtick.tasks t using (task_key)
    order by n.at
    limit max_count
$$;
comment on function pgtick.next_runs is 'What comes next, of one job or of all, as far as it is pending or planned: of a recurring job, those of the coming minute and the one after.';
