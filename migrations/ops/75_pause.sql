-- Pausing, resuming and running a job by hand.

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

create or replace function pgtick.pause_job(job_id uuid, note text default null) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.job_named(job_id);
    standing pgtick.schedules;
    first_at timestamptz;
    purged integer;
begin
    -- The row lock keeps planners off until the pause is committed.
    select * into standing from pgtick.schedules s where s.job_id = pause_job.job_id for update;
    if not found then
        raise exception 'job_id: job % has no occurrence ahead that could be paused', job_id using errcode = 'object_not_in_prerequisite_state';
    end if;
    with
    gone as (
        delete from pgtick.pending_executions p
        where p.job_id = pause_job.job_id and p.attempt = 0 and p.losses = 0 and p.origin is null and p.due_at > clock_timestamp()
        returning p.scheduled_at
    )
    select min(scheduled_at), count(*) into first_at, purged from gone;
    update pgtick.schedules s
    set paused_at = coalesce(s.paused_at, now()), paused_note = coalesce(note, s.paused_note),
        next_run_at = least(s.next_run_at, first_at), runs = greatest(s.runs - purged, 0)
    where s.job_id = pause_job.job_id;
    perform pgtick.audit('pause', job_id::text, jsonb_strip_nulls(jsonb_build_object('note', note, 'purged', purged)));
    return purged;
end $$;
comment on function pgtick.pause_job is
    'Stops a recurring job, or a date far ahead, from making executions. What was pending ahead is taken back; what is due or runs goes on. Returns how many were taken back.';

create or replace function pgtick.resume_job(job_id uuid) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.job_named(job_id);
    resumed integer;
begin
    -- The planner computes the next time from now on (zone_version is null: not computed): slots missed stay missed.
    -- A single date that has passed meanwhile is due at once.
    update pgtick.schedules s
    set paused_at = null, paused_note = null, next_run_at = case when s.expression is null then greatest(s.next_run_at, now()) else now() end,
        planned_through = case when s.expression is null then s.planned_through else now() end, zone_version = null
    where s.job_id = resume_job.job_id and s.paused_at is not null;
    get diagnostics resumed = row_count;
    if resumed = 0 then
        return false;
    end if;
    perform pgtick.audit('resume', job_id::text);
    perform pg_notify('pgtick_due', (extract(epoch from now()) * 1000000)::bigint::text);
    return true;
end $$;
comment on function pgtick.resume_job is 'Lets a paused job go on from its next time after now. Returns whether it was paused.';

create or replace function pgtick.start_anew(job pgtick.jobs, at timestamptz, origin text) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    task pgtick.tasks;
begin
    select * into task from pgtick.tasks t where t.task_id = job.task_id;
    if not found then
        raise exception 'task_id: no task "%" is registered', job.task_id using errcode = 'invalid_parameter_value';
    end if;
    -- Where runs of the job must not overlap, this one waits for its turn, whatever the rule for occurrences is.
    insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, overlap, origin)
    values (job.job_id, at, at, job.user_id, task.task_key, task.priority,
            case when job.schedule_type = 'CRON' and coalesce(job.policies ->> 'overlap', 'skip') <> 'allow' then 'queue_one' end, origin);
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
    perform pg_notify('pgtick_due', (extract(epoch from at) * 1000000)::bigint::text);
    return made;
end $$;
comment on function pgtick.run_now is 'Starts a job once more, now, besides its schedule (also while it is paused). Returns the id of the execution.';
