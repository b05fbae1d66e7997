-- Creating jobs.

create or replace function pgtick.insert_jobs(job_ids uuid[], user_ids text[], task_ids text[], schedule_types text[], expressions text[],
    timezones text[], run_ats timestamptz[], due_ats timestamptz[], parameters text[], max_retries smallint[], timeouts_s double precision[],
    policies text[], overlap_rules text[], expire_ats timestamptz[], anchor_ats timestamptz[], zone_version text) returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    made_until timestamptz := (select min(until_at) from pgtick.partition_windows where parent in ('pending_executions', 'finished_executions'));
    earliest timestamptz;
begin
    if made_until <= now() or (select until_at from pgtick.partition_windows where parent = 'jobs') <= now() then
        perform pgtick.ensure_partitions();
        made_until := (select min(until_at) from pgtick.partition_windows where parent in ('pending_executions', 'finished_executions'));
    end if;
    with
    -- One row a job. Without a time it starts now; a time in the past is now, too.
    new as (
        select j.*, t.task_key, t.priority,
               case when j.expression is null then greatest(j.run_at, now()) else j.run_at end as first_run_at,
               j.expression is null and greatest(j.run_at, now()) < made_until and greatest(j.due_at, now()) < made_until as ready
        from unnest(job_ids, user_ids, task_ids, schedule_types, expressions, timezones, run_ats, due_ats, parameters, max_retries, timeouts_s,
                    policies, overlap_rules, expire_ats, anchor_ats)
             as j (job_id, user_id, task_id, schedule_type, expression, timezone, run_at, due_at, parameters, max_retries, timeout_s,
                   policies, overlap, expires_at, anchor_at)
        left join pgtick.tasks t using (task_id)
    ),
    job as (
        insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, expression, timezone, run_at, parameters, max_retries, timeout_s, policies)
        select job_id, user_id, task_id, schedule_type, expression, timezone, case when expression is null then coalesce(run_at, now()) end,
               parameters::jsonb, max_retries, timeout_s, policies::jsonb
        from new
    ),
    -- Due while there are partitions: it waits in its hour.
    ready as (
        insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, overlap, expires_at)
        select job_id, first_run_at, greatest(due_at, now()), user_id, task_key, priority, overlap, expires_at from new where ready
        returning due_at
    ),
    -- Recurring, or later: the planner brings it in time.
    standing as (
        insert into pgtick.schedules (job_id, user_id, task_key, next_run_at, expression, timezone, priority, policies, anchor_at, zone_version)
        select job_id, user_id, task_key, first_run_at, expression, timezone, priority, policies::jsonb, coalesce(anchor_at, now()), insert_jobs.zone_version
        from new where not ready
        returning next_run_at
    )
    select min(at) into earliest from (select due_at from ready union all select next_run_at from standing) as dues (at);
    return earliest;
end $$;
comment on function pgtick.insert_jobs is 'Writes validated jobs, one array element a job, and returns when the first is due. Meant for programs; people call create_job.';

create or replace function pgtick.create_job(task_id text, schedule text default 'now', parameters jsonb default '{}', user_id text default 'default',
    timezone text default 'UTC', max_retries integer default null, timeout_s double precision default null) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    new_id uuid := pgtick.uuid7();
    words text[] := regexp_split_to_array(btrim(schedule), '\s+');
    kind text;
    at timestamptz;
    due timestamptz;
begin
    if not exists (select from pgtick.tasks t where t.task_id = create_job.task_id) then
        raise exception 'task_id: no task "%" is registered', task_id using errcode = 'invalid_parameter_value';
    end if;
    if jsonb_typeof(parameters) is distinct from 'object' then
        raise exception 'parameters: must be a JSON object' using errcode = 'invalid_parameter_value';
    end if;
    if not exists (select from pg_timezone_names where name = timezone) then
        raise exception 'timezone: no time zone "%"', timezone using errcode = 'invalid_parameter_value';
    end if;
    if lower(btrim(schedule)) = 'now' then
        kind := 'NOW';
    elsif schedule ~ '^\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?\s*(Z|[+-]\d\d(:?\d\d)?)\s*$' then
        kind := 'DATE';
        at := schedule::timestamptz;
        if at > now() + interval '10 years' then
            raise exception 'schedule: % is more than 10 years ahead', schedule using errcode = 'invalid_parameter_value';
        end if;
        at := greatest(at, '2000-01-01 00:00Z');
    elsif schedule ~ '^\s*@' or cardinality(words) in (5, 6) then
        kind := 'CRON';
    else
        raise exception 'schedule: "%" is neither "now", nor an ISO 8601 date with an offset, nor a cron expression', schedule
            using errcode = 'invalid_parameter_value';
    end if;
    insert into pgtick.users (user_id) values (create_job.user_id) on conflict do nothing;
    -- A recurring job's first time is left to the planner (zone_version is null: not computed yet).
    due := pgtick.insert_jobs(array[new_id], array[user_id], array[task_id], array[kind], array[case kind when 'CRON' then btrim(schedule) end],
        array[timezone], array[case kind when 'CRON' then now() else at end], array[at], array[parameters::text], array[max_retries::smallint],
        array[timeout_s], array[null::text], array[case kind when 'CRON' then 'skip' end], array[null::timestamptz], array[now()], null);
    if due <= now() + interval '1 second' then
        perform pg_notify('pgtick_due', (extract(epoch from due) * 1000000)::bigint::text);
    end if;
    return new_id;
end $$;
comment on function pgtick.create_job is 'Creates a job in the caller''s transaction and returns its id. schedule: now, an ISO 8601 date with an offset, or a cron expression.';
