CREATE SCHEMA pgtick;

CREATE FUNCTION pgtick.cancel_job(job_id uuid) RETURNS integer
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with
    job as (
        update pgtick.jobs j set cancelled_at = now() where j.job_id = cancel_job.job_id and j.cancelled_at is null
    ),
    standing as (
        delete from pgtick.schedules s where s.job_id = cancel_job.job_id
    ),
    waiting as (
        delete from pgtick.pending_executions p where p.job_id = cancel_job.job_id returning p.*
    ),
    over as (
        insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, losses, origin, error, errors)
        select job_id, scheduled_at, user_id, task_key, 'CANCELLED', attempt, due_at, now(), losses, origin, errors -> -1 ->> 'error', errors
        from waiting
        on conflict do nothing
    )
    select count(*)::integer from waiting
$$;

COMMENT ON FUNCTION pgtick.cancel_job(job_id uuid) IS 'Cancels what has not started of a job, for good. Returns how many pending executions that were.';

CREATE FUNCTION pgtick.create_job(task_id text, schedule text DEFAULT 'now'::text, parameters jsonb DEFAULT '{}'::jsonb, user_id text DEFAULT 'default'::text, timezone text DEFAULT 'UTC'::text, max_retries integer DEFAULT NULL::integer, timeout_s double precision DEFAULT NULL::double precision) RETURNS uuid
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;

COMMENT ON FUNCTION pgtick.create_job(task_id text, schedule text, parameters jsonb, user_id text, timezone text, max_retries integer, timeout_s double precision) IS 'Creates a job in the caller''s transaction and returns its id. schedule: now, an ISO 8601 date with an offset, or a cron expression.';

CREATE FUNCTION pgtick.drop_partition(partition text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
    old record;
    used boolean;
begin
    select p.* into strict old from pgtick.partitions p where p.partition = drop_partition.partition;
    if old.until_at > now() then
        raise exception 'partition % is not over before %', partition, old.until_at;
    end if;
    if old.parent = 'pending_executions' then
        -- Whatever still waits in an old hour is waiting, not history.
        execute format('select exists (select from pgtick.%I)', partition) into used;
        if used then
            return false;
        end if;
        execute format('lock table pgtick.%I in access exclusive mode', partition);
        execute format('select exists (select from pgtick.%I)', partition) into used;
        if used then
            return false;
        end if;
    end if;
    execute format('alter table pgtick.%I detach partition pgtick.%I', old.parent, partition);
    execute format('drop table pgtick.%I', partition);
    update pgtick.partition_windows w set from_at = least(greatest(w.from_at, old.until_at), w.until_at) where w.parent = old.parent;
    return true;
end $$;

COMMENT ON FUNCTION pgtick.drop_partition(partition text) IS 'Drops one past partition; a pending one only when it is empty. Returns whether it was dropped.';

CREATE FUNCTION pgtick.ensure_partitions(runway interval DEFAULT '48:00:00'::interval, since timestamp with time zone DEFAULT (now() - '02:00:00'::interval)) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
    select pgtick.extend_partitions('pending_executions', least(since, now() - interval '2 hours'), now() + runway)
         + pgtick.extend_partitions('finished_executions', least(since, now() - interval '2 hours'), now() + runway)
         + pgtick.extend_partitions('jobs', now() - interval '1 day', now() + greatest(runway, interval '8 days'))
         + pgtick.extend_partitions('execution_stats', now() - interval '1 day', now() + greatest(runway, interval '8 days'))
$$;

COMMENT ON FUNCTION pgtick.ensure_partitions(runway interval, since timestamp with time zone) IS 'Makes the missing partitions from since until now() + runway of every partitioned table; returns how many it made.';

CREATE FUNCTION pgtick.execution_id(scheduled_at timestamp with time zone, job_id uuid) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((((EXTRACT(epoch FROM scheduled_at) * (1000000)::numeric))::bigint || '-'::text) || job_id);

COMMENT ON FUNCTION pgtick.execution_id(scheduled_at timestamp with time zone, job_id uuid) IS 'The printed id of an execution: <scheduled_at in µs>-<job_id>.';

CREATE FUNCTION pgtick.extend_partitions(parent text, from_at timestamp with time zone, until_at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    origin constant timestamptz := '2000-01-01 00:00Z';
    span pgtick.partition_windows;
    edge timestamptz;
    made integer := 0;
begin
    -- The row lock makes one maker wait for another.
    select * into strict span from pgtick.partition_windows w where w.parent = extend_partitions.parent for update;
    if span.until_at < extend_partitions.from_at - interval '7 days' then
        -- Nobody made partitions for long: begin again, without filling the hole.
        span.from_at := date_bin(span.step, extend_partitions.from_at, origin);
        span.until_at := span.from_at;
    end if;
    while span.until_at < extend_partitions.until_at loop
        edge := date_bin(span.step, span.until_at, origin) + span.step;
        perform pgtick.make_partition(parent, span.until_at, edge);
        span.until_at := edge;
        made := made + 1;
    end loop;
    while span.from_at > extend_partitions.from_at loop
        edge := date_bin(span.step, span.from_at - interval '1 microsecond', origin);
        perform pgtick.make_partition(parent, edge, span.from_at);
        span.from_at := edge;
        made := made + 1;
    end loop;
    update pgtick.partition_windows w set from_at = span.from_at, until_at = span.until_at
        where w.parent = span.parent and (w.from_at, w.until_at) is distinct from (span.from_at, span.until_at);
    return made;
end $$;

CREATE FUNCTION pgtick.insert_jobs(job_ids uuid[], user_ids text[], task_ids text[], schedule_types text[], expressions text[], timezones text[], run_ats timestamp with time zone[], due_ats timestamp with time zone[], parameters text[], max_retries smallint[], timeouts_s double precision[], policies text[], overlap_rules text[], expire_ats timestamp with time zone[], anchor_ats timestamp with time zone[], zone_version text) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.insert_jobs(job_ids uuid[], user_ids text[], task_ids text[], schedule_types text[], expressions text[], timezones text[], run_ats timestamp with time zone[], due_ats timestamp with time zone[], parameters text[], max_retries smallint[], timeouts_s double precision[], policies text[], overlap_rules text[], expire_ats timestamp with time zone[], anchor_ats timestamp with time zone[], zone_version text) IS 'Writes validated jobs, one array element a job, and returns when the first is due. Meant for programs; people call create_job.';

CREATE FUNCTION pgtick.make_partition(parent text, from_at timestamp with time zone, until_at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    name text := parent || to_char(from_at at time zone 'UTC', '_YYYYMMDD_HH24MI');
    lower_bound text := case parent when 'jobs' then pgtick.uuid7_floor(from_at)::text else to_char(from_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') end;
    upper_bound text := case parent when 'jobs' then pgtick.uuid7_floor(until_at)::text else to_char(until_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') end;
    -- Rows leave pending partitions as fast as they come: vacuum by count, not by a share of a moving size.
    storage text := case parent when 'pending_executions'
        then 'with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0)' else '' end;
begin
    if to_regclass(format('pgtick.%I', name)) is not null then
        return;
    end if;
    -- LIKE and ATTACH take no lock on the parent that a long SELECT or an INSERT would block; CREATE … PARTITION OF does.
    execute format('create table pgtick.%I (like pgtick.%I including all) %s', name, parent, storage);
    execute format('alter table pgtick.%I attach partition pgtick.%I for values from (%L) to (%L)', parent, name, lower_bound, upper_bound);
end $$;

CREATE FUNCTION pgtick.uuid7(at timestamp with time zone DEFAULT clock_timestamp()) RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    RETURN (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send((floor((EXTRACT(epoch FROM at) * (1000)::numeric)))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid;

COMMENT ON FUNCTION pgtick.uuid7(at timestamp with time zone) IS 'A new job id: UUIDv7 of that time (RFC 9562), so that ids sort by creation.';

CREATE FUNCTION pgtick.uuid7_floor(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((lpad(to_hex((floor((EXTRACT(epoch FROM at) * (1000)::numeric)))::bigint), 12, '0'::text) || repeat('0'::text, 20)))::uuid;

COMMENT ON FUNCTION pgtick.uuid7_floor(at timestamp with time zone) IS 'The smallest job id of that millisecond: the bound of a partition of jobs.';

CREATE FUNCTION pgtick.uuid7_time(id uuid) RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_timestamp((((((('x'::text || "left"(replace((id)::text, '-'::text, ''::text), 12)))::bit(48))::bigint)::numeric / 1000.0))::double precision);

COMMENT ON FUNCTION pgtick.uuid7_time(id uuid) IS 'When a job id was made, to the millisecond.';

CREATE TABLE pgtick.alembic_version (
    version_num character varying(32) NOT NULL
);

CREATE TABLE pgtick.api_tokens (
    token_id bigint NOT NULL,
    user_id text NOT NULL,
    name text NOT NULL,
    token_hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone
);

ALTER TABLE pgtick.api_tokens ALTER COLUMN token_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgtick.api_tokens_token_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pgtick.execution_stats (
    minute timestamp with time zone NOT NULL,
    task_key integer NOT NULL,
    worker_id bigint NOT NULL,
    started integer DEFAULT 0 NOT NULL,
    completed integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    retried integer DEFAULT 0 NOT NULL,
    run_ms bigint DEFAULT 0 NOT NULL,
    lateness integer[] DEFAULT '{}'::integer[] NOT NULL
)
PARTITION BY RANGE (minute);

CREATE TABLE pgtick.finished_executions (
    job_id uuid NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    user_id text NOT NULL,
    task_key integer NOT NULL,
    status text NOT NULL,
    attempt smallint NOT NULL,
    due_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker_id bigint,
    losses smallint DEFAULT 0 NOT NULL,
    skipped integer,
    origin text,
    error text,
    errors jsonb,
    result jsonb,
    CONSTRAINT finished_executions_attempt_is_not_negative CHECK (((attempt >= 0) AND (losses >= 0))),
    CONSTRAINT finished_executions_status_is_final CHECK ((status = ANY (ARRAY['COMPLETED'::text, 'FAILED'::text, 'CANCELLED'::text, 'SKIPPED'::text]))),
    CONSTRAINT finished_executions_times_are_sane CHECK ((isfinite(scheduled_at) AND isfinite(finished_at)))
)
PARTITION BY RANGE (scheduled_at);

CREATE TABLE pgtick.pending_executions (
    job_id uuid NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    user_id text NOT NULL,
    task_key integer NOT NULL,
    priority smallint DEFAULT 2 NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    losses smallint DEFAULT 0 NOT NULL,
    suspect boolean DEFAULT false NOT NULL,
    overlap text,
    expires_at timestamp with time zone,
    origin text,
    errors jsonb,
    CONSTRAINT pending_executions_attempt_is_not_negative CHECK (((attempt >= 0) AND (losses >= 0))),
    CONSTRAINT pending_executions_overlap_is_known CHECK ((overlap = ANY (ARRAY['skip'::text, 'queue_one'::text, 'cancel_running'::text]))),
    CONSTRAINT pending_executions_priority_is_1_to_4 CHECK (((priority >= 1) AND (priority <= 4))),
    CONSTRAINT pending_executions_times_are_sane CHECK (((scheduled_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (scheduled_at < '2200-01-01 00:00:00+00'::timestamp with time zone) AND (due_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (due_at < '2200-01-01 00:00:00+00'::timestamp with time zone)))
)
PARTITION BY RANGE (due_at);

CREATE TABLE pgtick.running_executions (
    claim_id bigint NOT NULL,
    job_id uuid NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    user_id text NOT NULL,
    task_key integer NOT NULL,
    priority smallint NOT NULL,
    attempt smallint NOT NULL,
    losses smallint NOT NULL,
    suspect boolean NOT NULL,
    overlap text,
    expires_at timestamp with time zone,
    origin text,
    worker_id bigint NOT NULL,
    claimed_at timestamp with time zone DEFAULT now() NOT NULL,
    lease_expires_at timestamp with time zone NOT NULL,
    cancel_requested_at timestamp with time zone,
    progress jsonb,
    errors jsonb,
    CONSTRAINT running_executions_attempt_is_positive CHECK (((attempt >= 1) AND (losses >= 0)))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE pgtick.schedules (
    job_id uuid NOT NULL,
    user_id text NOT NULL,
    task_key integer NOT NULL,
    next_run_at timestamp with time zone,
    expression text,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    priority smallint DEFAULT 2 NOT NULL,
    policies jsonb,
    anchor_at timestamp with time zone DEFAULT now() NOT NULL,
    planned_through timestamp with time zone,
    zone_version text,
    runs bigint DEFAULT 0 NOT NULL,
    paused_at timestamp with time zone,
    paused_note text,
    problem text,
    CONSTRAINT schedules_next_run_at_is_sane CHECK (((next_run_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (next_run_at < '2200-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedules_policies_is_an_object CHECK ((jsonb_typeof(policies) = 'object'::text)),
    CONSTRAINT schedules_runs_is_not_negative CHECK ((runs >= 0))
)
WITH (fillfactor='80');

CREATE TABLE pgtick.tasks (
    task_id text NOT NULL,
    task_key integer NOT NULL,
    kind text DEFAULT 'python'::text NOT NULL,
    target text NOT NULL,
    description text,
    queue text DEFAULT 'default'::text NOT NULL,
    priority smallint DEFAULT 2 NOT NULL,
    max_retries smallint DEFAULT 3 NOT NULL,
    backoff_base_s double precision DEFAULT 5 NOT NULL,
    backoff_factor double precision DEFAULT 5 NOT NULL,
    backoff_cap_s double precision DEFAULT 86400 NOT NULL,
    timeout_s double precision,
    options jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT tasks_backoff_is_sane CHECK (((backoff_base_s >= (0)::double precision) AND (backoff_factor >= (1)::double precision) AND ((backoff_cap_s >= (0)::double precision) AND (backoff_cap_s <= (86400)::double precision)))),
    CONSTRAINT tasks_kind_is_known CHECK ((kind = ANY (ARRAY['python'::text, 'http'::text]))),
    CONSTRAINT tasks_max_retries_is_sane CHECK (((max_retries >= 0) AND (max_retries <= 1000))),
    CONSTRAINT tasks_options_is_an_object CHECK ((jsonb_typeof(options) = 'object'::text)),
    CONSTRAINT tasks_priority_is_1_to_4 CHECK (((priority >= 1) AND (priority <= 4))),
    CONSTRAINT tasks_task_id_is_a_name CHECK ((task_id ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$'::text)),
    CONSTRAINT tasks_timeout_is_positive CHECK ((timeout_s > (0)::double precision))
);

CREATE VIEW pgtick.executions AS
 SELECT e.job_id,
    e.scheduled_at,
    t.task_id,
    e.user_id,
    e.status,
    e.attempt,
    e.due_at,
    e.started_at,
    e.finished_at,
    (e.started_at - e.due_at) AS lateness,
    e.worker_id,
    e.losses,
    e.error,
    e.result,
    e.errors,
    e.origin,
    e.skipped,
    pgtick.execution_id(e.scheduled_at, e.job_id) AS execution_id
   FROM (( SELECT finished_executions.job_id,
            finished_executions.scheduled_at,
            finished_executions.user_id,
            finished_executions.task_key,
            finished_executions.status,
            finished_executions.attempt,
            finished_executions.due_at,
            finished_executions.started_at,
            finished_executions.finished_at,
            finished_executions.worker_id,
            finished_executions.losses,
            finished_executions.error,
            finished_executions.result,
            finished_executions.errors,
            finished_executions.origin,
            finished_executions.skipped
           FROM pgtick.finished_executions
        UNION ALL
         SELECT running_executions.job_id,
            running_executions.scheduled_at,
            running_executions.user_id,
            running_executions.task_key,
            'IN_PROGRESS'::text,
            running_executions.attempt,
            running_executions.due_at,
            GREATEST(running_executions.due_at, running_executions.claimed_at) AS "greatest",
            NULL::timestamp with time zone,
            running_executions.worker_id,
            running_executions.losses,
            ((running_executions.errors -> '-1'::integer) ->> 'error'::text),
            NULL::jsonb,
            running_executions.errors,
            running_executions.origin,
            NULL::integer
           FROM pgtick.running_executions
        UNION ALL
         SELECT pending_executions.job_id,
            pending_executions.scheduled_at,
            pending_executions.user_id,
            pending_executions.task_key,
                CASE
                    WHEN (pending_executions.attempt = 0) THEN 'PENDING'::text
                    ELSE 'RETRYING'::text
                END AS "case",
            pending_executions.attempt,
            pending_executions.due_at,
            NULL::timestamp with time zone,
            NULL::timestamp with time zone,
            NULL::bigint,
            pending_executions.losses,
            ((pending_executions.errors -> '-1'::integer) ->> 'error'::text),
            NULL::jsonb,
            pending_executions.errors,
            pending_executions.origin,
            NULL::integer
           FROM pgtick.pending_executions
        UNION ALL
         SELECT schedules.job_id,
            schedules.next_run_at,
            schedules.user_id,
            schedules.task_key,
            'PENDING'::text,
            (0)::smallint AS int2,
            schedules.next_run_at,
            NULL::timestamp with time zone,
            NULL::timestamp with time zone,
            NULL::bigint,
            (0)::smallint AS int2,
            schedules.problem,
            NULL::jsonb,
            NULL::jsonb,
            NULL::text,
            NULL::integer
           FROM pgtick.schedules
          WHERE ((schedules.next_run_at IS NOT NULL) AND (schedules.paused_at IS NULL) AND (schedules.problem IS NULL))) e
     LEFT JOIN pgtick.tasks t USING (task_key));

COMMENT ON VIEW pgtick.executions IS 'Every execution in every state: PENDING, IN_PROGRESS, RETRYING, COMPLETED, FAILED, CANCELLED, SKIPPED.';

CREATE TABLE pgtick.findings (
    kind text NOT NULL,
    subject text NOT NULL,
    sentence text NOT NULL,
    found_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE pgtick.idempotency_keys (
    user_id text NOT NULL,
    key text NOT NULL,
    body_hash bytea NOT NULL,
    response jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE pgtick.jobs (
    job_id uuid NOT NULL,
    user_id text NOT NULL,
    task_id text NOT NULL,
    schedule_type text NOT NULL,
    expression text,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    run_at timestamp with time zone,
    parameters jsonb DEFAULT '{}'::jsonb NOT NULL,
    max_retries smallint,
    timeout_s double precision,
    policies jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    CONSTRAINT jobs_cron_has_an_expression CHECK (((schedule_type = 'CRON'::text) = (expression IS NOT NULL))),
    CONSTRAINT jobs_max_retries_is_sane CHECK (((max_retries >= 0) AND (max_retries <= 1000))),
    CONSTRAINT jobs_one_off_has_a_time CHECK (((schedule_type = 'CRON'::text) = (run_at IS NULL))),
    CONSTRAINT jobs_parameters_is_an_object CHECK ((jsonb_typeof(parameters) = 'object'::text)),
    CONSTRAINT jobs_policies_is_an_object CHECK ((jsonb_typeof(policies) = 'object'::text)),
    CONSTRAINT jobs_run_at_is_sane CHECK (((run_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (run_at < '2200-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT jobs_schedule_type_is_known CHECK ((schedule_type = ANY (ARRAY['NOW'::text, 'DATE'::text, 'CRON'::text]))),
    CONSTRAINT jobs_timeout_is_positive CHECK ((timeout_s > (0)::double precision))
)
PARTITION BY RANGE (job_id);

CREATE TABLE pgtick.partition_windows (
    parent text NOT NULL,
    from_at timestamp with time zone NOT NULL,
    until_at timestamp with time zone NOT NULL,
    step interval NOT NULL,
    CONSTRAINT partition_windows_is_a_span CHECK ((from_at <= until_at)),
    CONSTRAINT partition_windows_step_is_positive CHECK ((step > '00:00:00'::interval))
);

CREATE VIEW pgtick.partitions AS
 SELECT (parent.relname)::text AS parent,
    (child.relname)::text AS partition,
        CASE parent.relname
            WHEN 'jobs'::name THEN pgtick.uuid7_time((b.bound[1])::uuid)
            ELSE (b.bound[1])::timestamp with time zone
        END AS from_at,
        CASE parent.relname
            WHEN 'jobs'::name THEN pgtick.uuid7_time((b.bound[2])::uuid)
            ELSE (b.bound[2])::timestamp with time zone
        END AS until_at,
    (GREATEST(child.reltuples, (0)::real))::bigint AS estimated_rows,
    pg_total_relation_size((child.oid)::regclass) AS bytes
   FROM (((pg_inherits i
     JOIN pg_class parent ON ((parent.oid = i.inhparent)))
     JOIN pg_class child ON ((child.oid = i.inhrelid)))
     CROSS JOIN LATERAL ( SELECT regexp_match(pg_get_expr(child.relpartbound, child.oid), 'FROM \(''([^'']+)''\) TO \(''([^'']+)''\)'::text) AS regexp_match) b(bound))
  WHERE ((parent.relnamespace = ('pgtick'::regnamespace)::oid) AND (parent.relkind = 'p'::"char"));

COMMENT ON VIEW pgtick.partitions IS 'Every partition with its bounds, estimated rows and size in bytes.';

ALTER TABLE pgtick.running_executions ALTER COLUMN claim_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgtick.running_executions_claim_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1000
);

ALTER TABLE pgtick.tasks ALTER COLUMN task_key ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgtick.tasks_task_key_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pgtick.users (
    user_id text NOT NULL,
    role text DEFAULT 'user'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT users_role_is_known CHECK ((role = ANY (ARRAY['user'::text, 'operator'::text, 'admin'::text]))),
    CONSTRAINT users_user_id_is_short CHECK (((length(user_id) >= 1) AND (length(user_id) <= 200)))
);

CREATE TABLE pgtick.workers (
    worker_id bigint NOT NULL,
    name text NOT NULL,
    state text DEFAULT 'RUNNING'::text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    stopped_at timestamp with time zone,
    drain_requested_at timestamp with time zone,
    running integer DEFAULT 0 NOT NULL,
    capacity integer NOT NULL,
    task_keys integer[] DEFAULT '{}'::integer[] NOT NULL,
    queues text[],
    version text NOT NULL,
    CONSTRAINT workers_state_is_known CHECK ((state = ANY (ARRAY['RUNNING'::text, 'DRAINING'::text, 'STOPPED'::text, 'LOST'::text])))
);

ALTER TABLE pgtick.workers ALTER COLUMN worker_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgtick.workers_worker_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY pgtick.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY pgtick.api_tokens
    ADD CONSTRAINT api_tokens_pkey PRIMARY KEY (token_id);

ALTER TABLE ONLY pgtick.api_tokens
    ADD CONSTRAINT api_tokens_token_hash_key UNIQUE (token_hash);

ALTER TABLE ONLY pgtick.findings
    ADD CONSTRAINT findings_pkey PRIMARY KEY (kind, subject);

ALTER TABLE ONLY pgtick.finished_executions
    ADD CONSTRAINT finished_executions_pkey PRIMARY KEY (job_id, scheduled_at);

ALTER TABLE ONLY pgtick.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (user_id, key);

ALTER TABLE ONLY pgtick.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY pgtick.partition_windows
    ADD CONSTRAINT partition_windows_pkey PRIMARY KEY (parent);

ALTER TABLE ONLY pgtick.running_executions
    ADD CONSTRAINT running_executions_pkey PRIMARY KEY (claim_id);

ALTER TABLE ONLY pgtick.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY pgtick.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY pgtick.tasks
    ADD CONSTRAINT tasks_task_key_key UNIQUE (task_key);

ALTER TABLE ONLY pgtick.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (user_id);

ALTER TABLE ONLY pgtick.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (worker_id);

CREATE INDEX execution_stats_by_minute ON ONLY pgtick.execution_stats USING btree (minute, task_key);

CREATE INDEX finished_executions_by_user ON ONLY pgtick.finished_executions USING btree (user_id, scheduled_at, job_id);

CREATE INDEX finished_executions_not_completed ON ONLY pgtick.finished_executions USING btree (status, scheduled_at, job_id) WHERE (status <> 'COMPLETED'::text);

CREATE INDEX idempotency_keys_by_age ON pgtick.idempotency_keys USING btree (created_at);

CREATE INDEX jobs_by_user ON ONLY pgtick.jobs USING btree (user_id, job_id);

CREATE INDEX pending_executions_by_job ON ONLY pgtick.pending_executions USING btree (job_id);

CREATE INDEX pending_executions_by_user ON ONLY pgtick.pending_executions USING btree (user_id, scheduled_at);

CREATE INDEX pending_executions_for_claiming ON ONLY pgtick.pending_executions USING btree (priority, due_at, job_id);

CREATE UNIQUE INDEX running_executions_without_overlap ON pgtick.running_executions USING btree (job_id) WHERE (overlap IS NOT NULL);

CREATE INDEX schedules_by_next_run ON pgtick.schedules USING btree (next_run_at) WHERE ((next_run_at IS NOT NULL) AND (paused_at IS NULL) AND (problem IS NULL));

CREATE INDEX schedules_by_user ON pgtick.schedules USING btree (user_id, next_run_at);

ALTER TABLE ONLY pgtick.api_tokens
    ADD CONSTRAINT api_tokens_user_id_fkey FOREIGN KEY (user_id) REFERENCES pgtick.users(user_id) ON DELETE CASCADE;
