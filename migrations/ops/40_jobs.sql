-- Creating jobs.

create or replace function pgtick.insert_jobs(job_ids uuid[], user_ids text[], task_ids text[], schedule_types text[], expressions text[],
    timezones text[], run_ats timestamptz[], due_ats timestamptz[], parameters text[], max_retries smallint[], timeouts_s double precision[],
    policies text[], overlap_rules text[], expire_ats timestamptz[], anchor_ats timestamptz[], zone_version text,
    traces text[] default null) returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    made_until timestamptz := (select min(until_at) from pgtick.partition_windows where parent in ('pending_executions', 'finished_executions'));
    earliest timestamptz;
begin
    if made_until <= now() or (select until_at from pgtick.partition_windows where parent = 'jobs') <= now() then
        perform pgtick.ensure_partitions(runway => '4 hours'); -- workers make the rest: this is to be quick
        made_until := (select min(until_at) from pgtick.partition_windows where parent in ('pending_executions', 'finished_executions'));
    end if;
    with
    -- One row a job. Without a time it starts now; a time in the past is now, too.
    new as (
        select j.*, t.task_key, t.priority,
               case when j.expression is null then greatest(j.run_at, now()) else j.run_at end as first_run_at,
               j.expression is null and greatest(j.run_at, now()) < made_until and greatest(j.due_at, now()) < made_until as ready
        from unnest(job_ids, user_ids, task_ids, schedule_types, expressions, timezones, run_ats, due_ats, parameters, max_retries, timeouts_s,
                    policies, overlap_rules, expire_ats, anchor_ats, traces)
             as j (job_id, user_id, task_id, schedule_type, expression, timezone, run_at, due_at, parameters, max_retries, timeout_s,
                   policies, overlap, expires_at, anchor_at, trace)
        left join pgtick.tasks t using (task_id)
    ),
    -- Everybody who has jobs is among the users: listings of all go from user to user.
    person as (
        insert into pgtick.users (user_id)
        select distinct user_id from new where not exists (select from pgtick.users u where u.user_id = new.user_id)
        order by user_id
        on conflict do nothing
    ),
    job as (
        insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, expression, timezone, run_at, parameters, max_retries, timeout_s, policies,
            trace)
        select job_id, user_id, task_id, schedule_type, expression, timezone, case when expression is null then coalesce(run_at, now()) end,
               parameters::jsonb, max_retries, timeout_s, policies::jsonb, trace::jsonb
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

create or replace function pgtick.job_to_do(job_id uuid, out parameters text, out max_retries smallint, out timeout_s double precision, out trace text)
language plpgsql stable strict
set search_path = pg_catalog, pg_temp
as $$
begin
    select j.parameters::text, j.max_retries, j.timeout_s, j.trace::text into parameters, max_retries, timeout_s, trace
    from pgtick.jobs j where j.job_id = job_to_do.job_id;
end $$;
comment on function pgtick.job_to_do is 'What a worker must know of a job to run it; nulls for a job that is gone. Meant for programs.';

create or replace function pgtick.instant_of(local timestamp, timezone text) returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    -- The offsets a day before and a day after: the clock changes at most once in between.
    early interval := ((local at time zone 'UTC') - interval '1 day') at time zone timezone - (local - interval '1 day');
    late interval := ((local at time zone 'UTC') + interval '1 day') at time zone timezone - (local + interval '1 day');
    before timestamptz := (local at time zone 'UTC') - greatest(early, late);
    after timestamptz := (local at time zone 'UTC') - least(early, late);
    middle timestamptz;
begin
    if before at time zone timezone = local then
        return before;
    elsif after at time zone timezone = local then
        return after;
    end if;
    -- The clock jumps over it: the instant of the jump, to the second.
    before := date_trunc('second', before) - interval '1 second';
    after := date_trunc('second', after) + interval '1 second';
    early := before at time zone timezone - before at time zone 'UTC';
    while after - before > interval '1 second' loop
        middle := date_trunc('second', before + (after - before) / 2);
        if middle at time zone timezone - middle at time zone 'UTC' = early then
            before := middle;
        else
            after := middle;
        end if;
    end loop;
    return after;
end $$;
comment on function pgtick.instant_of is
    'The instant at which clocks of a zone show a time: one that they show twice is the first, one that they jump over is the jump.';

create or replace function pgtick.read_instant(text text) returns timestamptz
language plpgsql immutable strict
set search_path = pg_catalog, pg_temp
as $$
begin
    -- The shape that app/schedule/dates.py has, with an offset.
    if text !~ '^\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?([Zz]|[+-](0\d|1[0-5])(:?[0-5]\d)?)$' then
        return null;
    end if;
    return regexp_replace(text, '(\.\d{6})\d+', '\1')::timestamptz;
exception when datetime_field_overflow or invalid_datetime_format then
    return null;
end $$;
comment on function pgtick.read_instant is 'The instant that a date and time with an offset names; null for what is none.';

create or replace function pgtick.read_schedule(schedule text, timezone text, out kind text, out expression text, out at timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    words text[] := regexp_split_to_array(btrim(schedule, E' \t'), '\s+');
begin
    if timezone is not null and (timezone in ('Factory', 'localtime', 'posixrules') or timezone ~ '^(posix|right)/'
            or not exists (select from pg_timezone_names where name = timezone)) then
        raise exception 'timezone: no time zone "%"', timezone using errcode = 'invalid_parameter_value';
    end if;
    if schedule ~* '^\s*now\s*$' then
        kind := 'NOW';
    elsif schedule ~ '^\s*\d{4}-' then
        kind := 'DATE';
        at := pgtick.read_instant(schedule);
        if at is null and pgtick.read_instant(schedule || 'Z') is not null then
            if timezone is null then
                raise exception 'schedule: "%" has no offset; add one such as Z or +02:00, or name a timezone', schedule
                    using errcode = 'invalid_parameter_value';
            end if;
            at := pgtick.instant_of(pgtick.read_instant(schedule || 'Z') at time zone 'UTC', timezone);
        end if;
        if at is null then
            raise exception 'schedule: "%" is not a date and time of ISO 8601, such as 2026-03-08T02:30:00Z', schedule
                using errcode = 'invalid_parameter_value';
        elsif at > now() + interval '10 years' then
            raise exception 'schedule: % is more than 10 years ahead', schedule using errcode = 'invalid_parameter_value';
        end if;
        at := greatest(at, '2000-01-01 00:00Z');
    elsif schedule ~ '^\s*@' or cardinality(words) in (5, 6) then
        kind := 'CRON';
        expression := btrim(schedule, E' \t');
        if length(expression) > 256 then
            raise exception 'schedule: is longer than 256 characters' using errcode = 'invalid_parameter_value';
        elsif expression ~ '[^\x20-\x7e\t]' then
            raise exception 'schedule: may hold only printable ASCII characters, blanks and tabs' using errcode = 'invalid_parameter_value';
        end if;
    else
        raise exception 'schedule: "%" is neither "now", nor an ISO 8601 date, nor a cron expression', coalesce(schedule, 'null')
            using errcode = 'invalid_parameter_value';
    end if;
end $$;
comment on function pgtick.read_schedule is 'What a schedule means: NOW, a DATE and its instant, or CRON and its expression, which a planner checks. Raises for anything else.';

create or replace function pgtick.check_policies(policies jsonb, recurring boolean) returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    policy record;
    wrong text;
begin
    if policies is null or policies = '{}' then
        return null;
    elsif jsonb_typeof(policies) <> 'object' then
        raise exception 'policies: must be a JSON object' using errcode = 'invalid_parameter_value';
    end if;
    for policy in select e.key, e.value, e.value #>> '{}' as text, jsonb_typeof(e.value) as type from jsonb_each(policies) e loop
        wrong := case
            when policy.key not in ('overlap', 'missed', 'gap', 'fold', 'missed_window_s', 'jitter_s', 'expires_after_s', 'max_runs', 'start_at', 'end_at', 'exclude')
                then 'there is no such policy'
            when policy.type = 'null' then null
            when not recurring and policy.key not in ('overlap', 'jitter_s', 'expires_after_s') then 'applies to recurring jobs only'
            when policy.key = 'overlap' and policy.text not in ('allow', 'skip', 'queue_one', 'cancel_running')
                then 'is not one of allow, skip, queue_one, cancel_running'
            when policy.key = 'missed' and policy.text not in ('latest', 'all', 'skip') then 'is not one of latest, all, skip'
            when policy.key = 'gap' and policy.text not in ('run_at_transition', 'skip') then 'is not one of run_at_transition, skip'
            when policy.key = 'fold' and policy.text not in ('first', 'second', 'both') then 'is not one of first, second, both'
            when policy.key in ('missed_window_s', 'jitter_s', 'expires_after_s', 'max_runs') and policy.type <> 'number' then 'must be a number'
            when policy.key = 'jitter_s' and not policy.text::numeric between 0 and 86400 then 'is not from 0 to 86400 seconds'
            when policy.key = 'expires_after_s' and not policy.text::numeric between 1 and 316224000 then 'is not from 1 to 316224000 seconds'
            when policy.key = 'missed_window_s' and not policy.text::numeric between 1 and 604800 then 'is not from 1 to 604800 seconds'
            when policy.key = 'max_runs' and not policy.text::numeric between 1 and 2147483647 then 'is not from 1 to 2147483647'
            when policy.key = 'max_runs' and policy.text !~ '^\d+$' then 'must be a whole number'
            when policy.key in ('start_at', 'end_at') and (policy.type <> 'string' or pgtick.read_instant(policy.text) is null)
                then 'is not a date and time with an offset, such as 2026-03-08T02:30:00Z'
            when policy.key in ('start_at', 'end_at') and not tstzrange('2000-01-01 00:00Z', '2200-01-01 00:00Z') @> pgtick.read_instant(policy.text)
                then 'is not in the years 2000 to 2199'
            when policy.key = 'exclude' and (policy.type <> 'array' or jsonb_path_exists(policy.value, '$[*] ? (@.type() <> "string")'))
                then 'must be a list of dates and cron expressions'
            when policy.key = 'exclude' and jsonb_array_length(policy.value) > 366 then 'has more than 366 entries'
        end;
        if wrong is not null then
            raise exception 'policies.%: %', policy.key, wrong using errcode = 'invalid_parameter_value';
        end if;
    end loop;
    if pgtick.read_instant(policies ->> 'end_at') < pgtick.read_instant(policies ->> 'start_at') then
        raise exception 'policies.end_at: is before start_at' using errcode = 'invalid_parameter_value';
    end if;
    return policies;
end $$;
comment on function pgtick.check_policies is 'The policies as they are stored. Raises for what is no policy; exclusions are checked by a planner, which stops the job visibly.';

create or replace function pgtick.read_trace(traceparent text, tracestate text) returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    parts text[] := regexp_match(btrim(traceparent, E' \t'), '^(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?$');
    member constant text := '([a-z0-9][a-z0-9_*/@-]*=[ -+\x2d-<>-~]*[!-+\x2d-<>-~])?';
    state text := btrim(tracestate, E' \t');
begin
    if parts is null or parts[1] = '00' and parts[4] is not null then
        return null;
    elsif parts[1] <> '00' then
        -- Of a later version, what this one knows.
        parts[3] := '0' || (get_byte(decode(parts[3], 'hex'), 0) & 3);
    end if;
    if state = '' or length(state) > 512 or state !~ format('^%1$s([ \t]*,[ \t]*%1$s){0,31}$', member) then
        state := null;
    end if;
    return jsonb_strip_nulls(jsonb_build_object('traceparent', format('00-%s-%s', parts[2], parts[3]), 'tracestate', state));
end $$;
comment on function pgtick.read_trace is
    'The headers of W3C Trace Context that a job hands on; null without a valid traceparent, which is never an error.';

create or replace function pgtick.check_tries(max_retries jsonb, timeout_s jsonb) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if not (case jsonb_typeof(max_retries) when 'null' then true when 'number' then max_retries #>> '{}' ~ '^\d+$' and max_retries::numeric <= 1000
            else max_retries is null end) then
        raise exception 'max_retries: must be a whole number from 0 to 1000' using errcode = 'invalid_parameter_value';
    elsif not (case jsonb_typeof(timeout_s) when 'null' then true when 'number' then timeout_s::numeric > 0 and timeout_s::numeric <= 31536000
            else timeout_s is null end) then
        raise exception 'timeout_s: must be a number above 0, at most 31536000' using errcode = 'invalid_parameter_value';
    end if;
end $$;
comment on function pgtick.check_tries is 'Raises for a number of retries or a timeout that a job cannot have. null: those of its task.';

create or replace function pgtick.create_job(task_id text, schedule text default 'now', parameters jsonb default '{}', user_id text default 'default',
    timezone text default null, max_retries integer default null, timeout_s double precision default null, policies jsonb default null,
    traceparent text default null, tracestate text default null) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    new_id uuid := pgtick.uuid7();
    asked record;
    first_at timestamptz;
    starts_at timestamptz;
    overlap_rule text;
    due timestamptz;
begin
    if not exists (select from pgtick.tasks t where t.task_id = create_job.task_id) then
        raise exception 'task_id: no task "%" is registered', task_id using errcode = 'invalid_parameter_value';
    end if;
    if jsonb_typeof(parameters) is distinct from 'object' then
        raise exception 'parameters: must be a JSON object' using errcode = 'invalid_parameter_value';
    end if;
    if user_id is null or length(user_id) not between 1 and 200 or user_id ~ '[\x01-\x1f\x7f]' then
        raise exception 'user_id: must have 1 to 200 characters, none of them a control character' using errcode = 'invalid_parameter_value';
    end if;
    perform pgtick.check_tries(to_jsonb(max_retries), to_jsonb(timeout_s));
    asked := pgtick.read_schedule(schedule, timezone);
    policies := pgtick.check_policies(policies, asked.kind = 'CRON');
    overlap_rule := nullif(coalesce(policies ->> 'overlap', case asked.kind when 'CRON' then 'skip' end), 'allow');
    if asked.kind <> 'CRON' then
        first_at := greatest(asked.at, now());
        starts_at := first_at + random() * coalesce((policies ->> 'jitter_s')::float8, 0) * interval '1 second';
    end if;
    insert into pgtick.users (user_id) values (create_job.user_id) on conflict do nothing;
    -- A recurring job's first time is left to the planner (zone_version is null: not computed yet).
    due := pgtick.insert_jobs(array[new_id], array[user_id], array[task_id], array[asked.kind], array[asked.expression],
        array[coalesce(timezone, 'UTC')], array[case asked.kind when 'CRON' then now() else asked.at end], array[coalesce(starts_at, asked.at)],
        array[parameters::text], array[max_retries::smallint], array[timeout_s], array[policies::text], array[overlap_rule],
        array[starts_at + (policies ->> 'expires_after_s')::float8 * interval '1 second'], array[now()], null,
        array[case when traceparent is not null then pgtick.read_trace(traceparent, tracestate)::text end]);
    if due <= now() + interval '1 second' then
        if asked.kind = 'CRON' then
            perform pgtick.tell('pgtick_plan', '');
        else
            perform pgtick.tell_due(due);
        end if;
    end if;
    return new_id;
end $$;
comment on function pgtick.create_job is
    'Creates a job in the caller''s transaction and returns its id. schedule: now, an ISO 8601 date (with an offset, or local in timezone), or a cron expression. policies: as in the API, for example {"overlap": "allow"}. traceparent, tracestate: of the trace it is part of, as W3C Trace Context writes them.';
