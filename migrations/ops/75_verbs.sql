-- What people do to a job. All of these lock in one order, so that none waits for another in a circle: the job, its
-- schedule (which keeps planners off), and then, in a new statement that sees what a planner committed meanwhile, its
-- pending executions. What is due or runs is left alone.

create or replace function pgtick.job_named(job_id uuid) returns pgtick.jobs
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs;
begin
    select * into job from pgtick.jobs j where j.job_id = job_named.job_id;
    if not found then
        raise exception 'job_id: there is no job %', coalesce(job_id::text, 'null') using errcode = 'no_data_found';
    elsif job.cancelled_at is not null then
        raise exception 'job_id: job % was cancelled at %', job_id, job.cancelled_at using errcode = 'object_not_in_prerequisite_state';
    end if;
    return job;
end $$;
comment on function pgtick.job_named is 'The job of that id; raises when there is none, or when it was cancelled.';

create or replace function pgtick.lock_job(job_id uuid) returns pgtick.jobs
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform from pgtick.jobs j where j.job_id = lock_job.job_id for update;
    perform from pgtick.schedules s where s.job_id = lock_job.job_id for update;
    return pgtick.job_named(job_id);
end $$;
comment on function pgtick.lock_job is 'The job of that id, locked with its schedule; raises as job_named does.';

create or replace function pgtick.task_named(task_id text) returns pgtick.tasks
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    task pgtick.tasks;
begin
    select * into task from pgtick.tasks t where t.task_id = task_named.task_id;
    if not found then
        raise exception 'task_id: no task "%" is registered', task_id using errcode = 'invalid_parameter_value';
    end if;
    return task;
end $$;
comment on function pgtick.task_named is 'The task of that name; raises when there is none.';

drop function if exists pgtick.take_back(uuid, timestamptz);
create or replace function pgtick.take_back(job_id uuid, since timestamptz default clock_timestamp(), scheduled_since timestamptz default '-infinity',
    out taken integer, out first_at timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    more integer;
    at timestamptz;
begin
    taken := 0;
    -- A claim may be putting one back while we wait for it: then the next look finds it.
    for turn in 1..100 loop
        with
        gone as (
            delete from pgtick.pending_executions p
            where p.job_id = take_back.job_id and p.attempt = 0 and p.losses = 0 and p.origin is null
              and p.due_at > since and p.scheduled_at > scheduled_since
            returning p.scheduled_at
        )
        select count(*), min(g.scheduled_at) into more, at from gone g;
        taken := taken + more;
        first_at := least(first_at, at);
        exit when not exists (select from pgtick.pending_executions p
                              where p.job_id = take_back.job_id and p.attempt = 0 and p.losses = 0 and p.origin is null
                                and p.due_at > since and p.scheduled_at > scheduled_since);
    end loop;
end $$;
comment on function pgtick.take_back is
    'Deletes what is pending, is due after since and was scheduled for after scheduled_since: not what was started by hand. For use under lock_job.';

create or replace function pgtick.plan_anew(job_id uuid) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    -- The planner computes the next time after planned_through (zone_version is null: not computed). What has been
    -- claimed ahead or is over already, though its time is still to come, is not made a second time.
    update pgtick.schedules s
    set next_run_at = clock_timestamp(), zone_version = null, problem = null,
        planned_through = greatest(clock_timestamp(),
            (select max(r.scheduled_at) from pgtick.running_executions r where r.job_id = plan_anew.job_id)),
        skips = nullif(array(select at from unnest(s.skips) as skipped (at) where at > clock_timestamp()
                             union
                             select f.scheduled_at from pgtick.finished_executions f
                             where f.job_id = plan_anew.job_id and f.scheduled_at > clock_timestamp()
                             order by 1), '{}')
    where s.job_id = plan_anew.job_id and s.expression is not null
$$;
comment on function pgtick.plan_anew is 'Has the planner compute the next time of a recurring job from now on. For use under lock_job.';

-- ── pause and resume ─────────────────────────────────────────────────────────────────────────────────────────────────

create or replace function pgtick.pause_job(job_id uuid, note text default null) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.lock_job(job_id);
    back record := pgtick.take_back(job_id);
    task pgtick.tasks;
    claim record;
begin
    update pgtick.schedules s
    set paused_at = coalesce(s.paused_at, clock_timestamp()), paused_note = coalesce(note, s.paused_note),
        next_run_at = least(s.next_run_at, back.first_at), runs = greatest(s.runs - back.taken, 0)
    where s.job_id = pause_job.job_id;
    if not found and back.taken = 0 then
        raise exception 'job_id: job % is due, has started, or is over', job_id using errcode = 'object_not_in_prerequisite_state';
    elsif not found then
        -- A single run waits where runs far ahead do.
        task := pgtick.task_named(job.task_id);
        insert into pgtick.schedules (job_id, user_id, task_key, next_run_at, timezone, priority, policies, anchor_at, paused_at, paused_note)
        values (job.job_id, job.user_id, task.task_key, back.first_at, job.timezone, task.priority, job.policies, job.created_at, clock_timestamp(), note);
    end if;
    -- What was claimed a little ahead of its time is not to start either.
    for claim in
        update pgtick.running_executions r set revoked_at = clock_timestamp()
        where r.job_id = pause_job.job_id and r.due_at > clock_timestamp() and r.origin is null and r.revoked_at is null
        returning r.claim_id
    loop
        perform pgtick.tell('pgtick_revoke', claim.claim_id::text);
    end loop;
    perform pgtick.audit('pause', job_id::text, jsonb_strip_nulls(jsonb_build_object('note', note, 'purged', back.taken)));
    return back.taken;
end $$;
comment on function pgtick.pause_job is
    'Stops a job from making executions. What was pending ahead is taken back; what is due or runs goes on. Returns how many were taken back.';

create or replace function pgtick.resume_job(job_id uuid) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.lock_job(job_id);
begin
    -- What it missed stays missed. A single date that has passed meanwhile is due at once.
    update pgtick.schedules s
    set paused_at = null, paused_note = null, next_run_at = case when s.expression is null then greatest(s.next_run_at, clock_timestamp()) end
    where s.job_id = resume_job.job_id and s.paused_at is not null;
    if not found then
        return false;
    end if;
    perform pgtick.plan_anew(job_id);
    perform pgtick.audit('resume', job_id::text);
    return true;
end $$;
comment on function pgtick.resume_job is 'Lets a paused job go on from its next time after now. Returns whether it was paused.';

-- ── one more run, now or for times past; one less ────────────────────────────────────────────────────────────────────

create or replace function pgtick.start_anew(job pgtick.jobs, at timestamptz, origin text, due timestamptz default null) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    task pgtick.tasks := pgtick.task_named(job.task_id);
begin
    -- Where runs of the job must not overlap, this one waits for its turn, whatever the rule for occurrences is.
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, overlap, origin)
    values (job.job_id, at, coalesce(due, at), job.user_id, task.task_key, task.priority,
            case when coalesce(job.policies ->> 'overlap', case job.schedule_type when 'CRON' then 'skip' else 'allow' end) <> 'allow' then 'wait' end,
            origin);
    -- By this, listings of jobs know of which there is more than one execution.
    if job.schedule_type <> 'CRON' and job.updated_at is null then
        update pgtick.jobs j set updated_at = clock_timestamp() where j.job_id = job.job_id and j.updated_at is null;
    end if;
    return pgtick.execution_id(at, job.job_id);
end $$;
comment on function pgtick.start_anew is 'Makes one more execution of a job pending, with a note where it came from; returns its id.';

create or replace function pgtick.run_now(job_id uuid) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.job_named(job_id);
    at timestamptz := clock_timestamp();
    made text := pgtick.start_anew(job, at, 'run_now');
begin
    perform pgtick.audit('run_now', made);
    perform pgtick.tell_due(at);
    return made;
end $$;
comment on function pgtick.run_now is 'Starts a job once more, now, besides its schedule (also while it is paused). Returns the id of the execution.';

create or replace function pgtick.backfill(job_id uuid, times timestamptz[]) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.lock_job(job_id);
    start_at timestamptz := clock_timestamp();
    oldest timestamptz := (select w.from_at from pgtick.partition_windows w where w.parent = 'finished_executions');
    at timestamptz;
    last_at timestamptz;
    made integer := 0;
begin
    if cardinality(times) > 1000 then
        raise exception 'times: % are more than 1000', cardinality(times) using errcode = 'invalid_parameter_value';
    elsif exists (select from unnest(times) t (at) where t.at is null or t.at > start_at) then
        raise exception 'times: must be past' using errcode = 'invalid_parameter_value';
    elsif exists (select from unnest(times) t (at) where t.at < oldest) then
        raise exception 'times: history begins at %; see pgtick.ensure_partitions', oldest using errcode = 'invalid_parameter_value';
    end if;
    for at in select distinct t.at from unnest(times) t (at) order by 1 loop
        continue when exists (select from pgtick.pending_executions p
                              where p.job_id = backfill.job_id and p.scheduled_at >= at and p.scheduled_at < at + interval '1 ms')
            or exists (select from pgtick.running_executions r
                       where r.job_id = backfill.job_id and r.scheduled_at >= at and r.scheduled_at < at + interval '1 ms')
            or exists (select from pgtick.finished_executions f
                       where f.job_id = backfill.job_id and f.scheduled_at >= at and f.scheduled_at < at + interval '1 ms' and f.status = 'COMPLETED');
        -- What failed or was left out stays on record: the new execution is a microsecond later.
        select max(f.scheduled_at) into last_at from pgtick.finished_executions f
        where f.job_id = backfill.job_id and f.scheduled_at >= at and f.scheduled_at < at + interval '1 ms';
        perform pgtick.start_anew(job, coalesce(last_at + interval '1 microsecond', at), 'backfill', start_at + made * interval '1 microsecond');
        made := made + 1;
    end loop;
    perform pgtick.audit('backfill', job_id::text,
        jsonb_build_object('made', made, 'from', (select min(t.at) from unnest(times) t (at)), 'to', (select max(t.at) from unnest(times) t (at))));
    if made > 0 then
        perform pgtick.tell_due(start_at);
    end if;
    return made;
end $$;
comment on function pgtick.backfill is
    'Runs a job for times past, at most 1000, except those it has run for, or is about to. Returns how many. The API computes the times of an expression.';

create or replace function pgtick.skip_run(job_id uuid, at timestamptz default null) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.lock_job(job_id);
    standing pgtick.schedules;
    wanted timestamptz := at;
    task pgtick.tasks := pgtick.task_named(job.task_id);
    taken integer := 0;
begin
    select * into standing from pgtick.schedules s where s.job_id = skip_run.job_id;
    if job.schedule_type <> 'CRON' then
        raise exception 'job_id: job % runs once; cancel it instead', job_id using errcode = 'object_not_in_prerequisite_state';
    end if;
    if wanted is null then
        select min(p.scheduled_at) into wanted from pgtick.pending_executions p
        where p.job_id = skip_run.job_id and p.attempt = 0 and p.losses = 0 and p.origin is null and p.due_at > clock_timestamp();
        if wanted is null and standing.zone_version is not null and standing.next_run_at <> all (coalesce(standing.skips, '{}')) then
            wanted := standing.next_run_at;
        end if;
    end if;
    -- One whose time has come may still be held back by its jitter.
    if wanted is null or wanted <= clock_timestamp() and not exists (
            select from pgtick.pending_executions p
            where p.job_id = skip_run.job_id and p.scheduled_at = wanted and p.attempt = 0 and p.losses = 0 and p.origin is null
              and p.due_at > clock_timestamp()) then
        raise exception 'at: % is not to come', coalesce(wanted::text, 'the next occurrence is not known, or') using errcode = 'invalid_parameter_value';
    end if;
    if wanted > clock_timestamp() + interval '10 years' then
        raise exception 'at: % is more than 10 years ahead', wanted using errcode = 'invalid_parameter_value';
    end if;
    for turn in 1..100 loop
        with
        gone as (
            delete from pgtick.pending_executions p
            where p.job_id = skip_run.job_id and p.scheduled_at = wanted and p.attempt = 0 and p.losses = 0 and p.origin is null
            returning p.scheduled_at
        )
        select count(*) into taken from gone;
        exit when taken > 0 or not exists (select from pgtick.pending_executions p where p.job_id = skip_run.job_id and p.scheduled_at = wanted);
    end loop;
    if taken = 0 and (wanted <= standing.planned_through and standing.zone_version is not null
                      or exists (select from pgtick.running_executions r where r.job_id = skip_run.job_id and r.scheduled_at = wanted)
                      or exists (select from pgtick.finished_executions f where f.job_id = skip_run.job_id and f.scheduled_at = wanted)
                      or wanted = any (standing.skips)) then
        raise exception 'at: the occurrence of % has started, is over, or is none', wanted using errcode = 'object_not_in_prerequisite_state';
    elsif cardinality(standing.skips) >= 1000 then
        raise exception 'at: 1000 coming occurrences are skipped already' using errcode = 'object_not_in_prerequisite_state';
    end if;
    -- Where history has no place for it yet, the planner records it when its time comes.
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, skipped, error)
    select job.job_id, wanted, job.user_id, task.task_key, 'SKIPPED', 0, wanted, clock_timestamp(), 1, 'skipped by hand'
    from pgtick.partition_windows w
    where w.parent = 'finished_executions' and wanted < w.until_at
    on conflict do nothing;
    update pgtick.schedules s set skips = array_append(s.skips, wanted), runs = greatest(s.runs - taken, 0) where s.job_id = skip_run.job_id;
    -- Where it was the next one, or the last of max_runs, another is the next one now: a planner finds out which.
    update pgtick.schedules s set next_run_at = clock_timestamp(), zone_version = null
    where s.job_id = skip_run.job_id and s.paused_at is null and (s.next_run_at = wanted or taken > 0 and s.next_run_at is null);
    perform pgtick.audit('skip', pgtick.execution_id(wanted, job_id));
    return pgtick.execution_id(wanted, job_id);
end $$;
comment on function pgtick.skip_run is 'Leaves out one coming occurrence of a recurring job, the next by default; it is SKIPPED. Returns the id of the execution.';

-- ── edit ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

create or replace function pgtick.edit_job(job_id uuid, changes jsonb, action text default 'edit') returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.lock_job(job_id);
    new pgtick.jobs := job;
    task pgtick.tasks := pgtick.task_named(job.task_id);
    unknown text;
    asked record;
    since timestamptz;
    missed_since timestamptz;
    back record;
begin
    if jsonb_typeof(changes) is distinct from 'object' then
        raise exception 'changes: must be a JSON object' using errcode = 'invalid_parameter_value';
    end if;
    unknown := (select min(k.name) from jsonb_object_keys(changes) as k (name)
                where k.name not in ('schedule', 'timezone', 'parameters', 'policies', 'max_retries', 'timeout_s'));
    if unknown is not null then
        raise exception '%: there is no such field; there are schedule, timezone, parameters, policies, max_retries, timeout_s', unknown
            using errcode = 'invalid_parameter_value';
    end if;
    new.timezone := coalesce(changes ->> 'timezone', job.timezone);
    if changes ? 'schedule' then
        asked := pgtick.read_schedule(changes ->> 'schedule', coalesce(changes ->> 'timezone', nullif(job.timezone, 'UTC')));
        if asked.kind <> 'NOW' or job.schedule_type <> 'NOW' then
            new.schedule_type := asked.kind;
            new.expression := asked.expression;
            new.run_at := case asked.kind when 'CRON' then null when 'NOW' then clock_timestamp() else asked.at end;
        end if;
    elsif changes ? 'timezone' then
        perform pgtick.read_schedule('now', changes ->> 'timezone');
    end if;
    if changes ? 'parameters' then
        if jsonb_typeof(changes -> 'parameters') <> 'object' then
            raise exception 'parameters: must be a JSON object' using errcode = 'invalid_parameter_value';
        end if;
        new.parameters := changes -> 'parameters';
    end if;
    if changes ? 'policies' then
        new.policies := nullif(changes -> 'policies', 'null');
    end if;
    new.policies := pgtick.check_policies(new.policies, new.schedule_type = 'CRON');
    perform pgtick.check_tries(changes -> 'max_retries', changes -> 'timeout_s');
    if changes ? 'max_retries' then
        new.max_retries := (changes ->> 'max_retries')::smallint;
    end if;
    if changes ? 'timeout_s' then
        new.timeout_s := (changes ->> 'timeout_s')::float8;
    end if;
    if new is not distinct from job then
        return false;
    end if;
    update pgtick.jobs j
    set schedule_type = new.schedule_type, expression = new.expression, timezone = new.timezone, run_at = new.run_at, parameters = new.parameters,
        policies = new.policies, max_retries = new.max_retries, timeout_s = new.timeout_s, updated_at = clock_timestamp()
    where j.job_id = edit_job.job_id;
    -- Parameters, retries and the timeout are read when an execution is claimed: nothing is to be replaced for them.
    if (new.schedule_type, new.expression, new.run_at, new.policies) is distinct from (job.schedule_type, job.expression, job.run_at, job.policies)
            or new.schedule_type = 'CRON' and new.timezone <> job.timezone then
        -- A single run may still be moved when it is due, as long as nobody has claimed it. An occurrence whose time has
        -- come is none of those ahead, though jitter may hold it back.
        since := case when job.schedule_type = 'CRON' then clock_timestamp() else '-infinity' end;
        back := pgtick.take_back(job_id, since, since);
        if job.schedule_type <> 'CRON' and back.taken = 0 and not exists (select from pgtick.schedules s where s.job_id = edit_job.job_id) then
            raise exception 'job_id: job % is due, has started, or is over', job_id using errcode = 'object_not_in_prerequisite_state';
        end if;
        -- What nobody came to plan in time is still to be: its policies say how.
        if (new.expression, new.timezone) is not distinct from (job.expression, job.timezone) then
            select case when s.zone_version is null then coalesce(s.planned_through, s.anchor_at) else s.next_run_at - interval '1 microsecond' end
            into missed_since from pgtick.schedules s where s.job_id = edit_job.job_id and s.paused_at is null;
        end if;
        insert into pgtick.schedules as s (job_id, user_id, task_key, next_run_at, expression, timezone, priority, policies, anchor_at)
        values (job.job_id, job.user_id, task.task_key, case when new.schedule_type = 'CRON' then clock_timestamp() else greatest(new.run_at, clock_timestamp()) end,
                new.expression, new.timezone, task.priority, new.policies, clock_timestamp())
        on conflict on constraint schedules_pkey do update
        set next_run_at = excluded.next_run_at, expression = excluded.expression, timezone = excluded.timezone, policies = excluded.policies,
            anchor_at = case when s.expression is not distinct from excluded.expression then s.anchor_at else excluded.anchor_at end,
            runs = greatest(s.runs - back.taken, 0), problem = null;
        perform pgtick.plan_anew(job_id);
        update pgtick.schedules s set planned_through = missed_since where s.job_id = edit_job.job_id and s.planned_through > missed_since;
    end if;
    perform pgtick.audit(action, job_id::text, jsonb_build_object('changed', (select jsonb_agg(k.name order by k.name) from jsonb_object_keys(changes) as k (name))));
    return true;
end $$;
comment on function pgtick.edit_job is
    'Changes a job: {"schedule", "timezone", "parameters", "policies", "max_retries", "timeout_s"}, those that are given. Pending executions ahead are replaced; what is due or runs goes on as it was. Returns whether anything changed.';
