-- The tables of pgtick. One table per state of an execution: a row's place is its state, and no row is updated
-- between the creation of a job and the end of its execution. Times are timestamptz, ids bigint or uuid.

create schema if not exists pgtick;

-- Who: every user_id that ever created a job, and the people or programs that hold a token.
create table pgtick.users (
    user_id text not null,
    role text not null default 'user',
    created_at timestamptz not null default now(),
    constraint users_pkey primary key (user_id),
    constraint users_user_id_is_short check (length(user_id) between 1 and 200),
    constraint users_role_is_known check (role in ('user', 'operator', 'admin'))
);

create table pgtick.api_tokens (
    token_id bigint generated always as identity,
    user_id text not null references pgtick.users (user_id) on delete cascade,
    name text not null,
    token_hash bytea not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    constraint api_tokens_pkey primary key (token_id),
    constraint api_tokens_token_hash_key unique (token_hash)
);

-- Pieces of work that jobs can name. task_key is the short name of a task in the execution tables. Tasks with limits have
-- priorities 5 to 8 instead of 1 to 4: what waits for them is out of sight of claims until pgtick.admit() lets it in.
create table pgtick.tasks (
    task_id text not null,
    task_key integer generated always as identity,
    kind text not null default 'python',
    target text not null,
    pool text not null default 'async',
    description text,
    queue text not null default 'default',
    priority smallint not null default 2,
    max_retries smallint not null default 3,
    backoff_base_s double precision not null default 5,
    backoff_factor double precision not null default 5,
    backoff_cap_s double precision not null default 86400,
    backoff_jitter double precision not null default 0,
    timeout_s double precision,
    max_concurrent integer,
    concurrency_key text,
    max_per_key integer,
    rate_per_s double precision,
    parameters_schema jsonb,
    options jsonb not null default '{}',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint tasks_pkey primary key (task_id),
    constraint tasks_task_key_key unique (task_key),
    constraint tasks_task_id_is_a_name check (task_id ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$'),
    constraint tasks_kind_is_known check (kind in ('python', 'http')),
    constraint tasks_pool_is_known check (pool in ('async', 'thread', 'process')),
    constraint tasks_priority_tells_of_limits
        check (case when max_concurrent is null and max_per_key is null and rate_per_s is null then priority between 1 and 4 else priority between 5 and 8 end),
    constraint tasks_max_retries_is_sane check (max_retries between 0 and 1000),
    constraint tasks_backoff_is_sane check (backoff_base_s >= 0 and backoff_factor >= 1 and backoff_cap_s between 0 and 86400 and backoff_jitter between 0 and 1),
    constraint tasks_limits_are_positive check (max_concurrent > 0 and max_per_key > 0 and rate_per_s > 0),
    constraint tasks_key_goes_with_its_limit check ((concurrency_key is null) = (max_per_key is null)),
    constraint tasks_timeout_is_positive check (timeout_s > 0),
    constraint tasks_options_is_an_object check (jsonb_typeof(options) = 'object')
);

-- What endpoints of HTTP tasks must be sent and nobody needs to see: the key that signs, and headers.
create table pgtick.task_secrets (
    task_id text not null references pgtick.tasks (task_id) on delete cascade,
    secret text not null,
    headers jsonb not null default '{}',
    constraint task_secrets_pkey primary key (task_id)
);

-- What users asked for. job_id is a UUIDv7, so its range is its day of creation. run_at is the time of a one-off. trace
-- holds the headers traceparent and tracestate of the request that made the job.
create table pgtick.jobs (
    job_id uuid not null,
    user_id text not null,
    task_id text not null,
    schedule_type text not null,
    expression text,
    timezone text not null default 'UTC',
    run_at timestamptz,
    parameters jsonb not null default '{}',
    max_retries smallint,
    timeout_s double precision,
    policies jsonb,
    trace jsonb,
    created_at timestamptz not null default now(),
    updated_at timestamptz,
    cancelled_at timestamptz,
    constraint jobs_pkey primary key (job_id),
    constraint jobs_schedule_type_is_known check (schedule_type in ('NOW', 'DATE', 'CRON')),
    constraint jobs_cron_has_an_expression check ((schedule_type = 'CRON') = (expression is not null)),
    constraint jobs_one_off_has_a_time check ((schedule_type = 'CRON') = (run_at is null)),
    constraint jobs_run_at_is_sane check (run_at >= '2000-01-01 00:00Z' and run_at < '2200-01-01 00:00Z'),
    constraint jobs_parameters_is_an_object check (jsonb_typeof(parameters) = 'object'),
    constraint jobs_policies_is_an_object check (jsonb_typeof(policies) = 'object'),
    constraint jobs_trace_is_an_object check (jsonb_typeof(trace) = 'object'),
    constraint jobs_max_retries_is_sane check (max_retries between 0 and 1000),
    constraint jobs_timeout_is_sane check (timeout_s > 0 and timeout_s <= 31536000)
) partition by range (job_id);
create index jobs_cancelled on pgtick.jobs (user_id, job_id) where cancelled_at is not null;

-- One row per job with an occurrence ahead that is not pending yet: cron jobs, and one-offs beyond the partitions made
-- so far (no expression). zone_version is the zone data next_run_at was computed with; when it differs from the
-- planner's (or is null: never computed), the planner computes next_run_at again, strictly after planned_through.
-- skips are times at which a person wants no run. A one-off that was cancelled here, before there was a partition for
-- its execution, stays with cancelled_at.
create table pgtick.schedules (
    job_id uuid not null,
    user_id text not null,
    task_key integer not null,
    next_run_at timestamptz,
    expression text,
    timezone text not null default 'UTC',
    priority smallint not null default 2,
    policies jsonb,
    anchor_at timestamptz not null default now(),
    planned_through timestamptz,
    zone_version text,
    runs bigint not null default 0,
    paused_at timestamptz,
    paused_note text,
    skips timestamptz[],
    cancelled_at timestamptz,
    problem text,
    constraint schedules_pkey primary key (job_id),
    constraint schedules_next_run_at_is_sane check (next_run_at >= '2000-01-01 00:00Z' and next_run_at < '2200-01-01 00:00Z'),
    constraint schedules_policies_is_an_object check (jsonb_typeof(policies) = 'object'),
    constraint schedules_anchor_at_is_sane check (anchor_at >= '2000-01-01 00:00Z' and anchor_at < '2200-01-01 00:00Z'),
    constraint schedules_planned_through_is_sane check (planned_through >= '2000-01-01 00:00Z' and planned_through < '2200-01-01 00:00Z'),
    constraint schedules_skips_are_sane check ('2000-01-01 00:00Z' <= all (skips) and '2200-01-01 00:00Z' > all (skips)),
    constraint schedules_priority_is_1_to_8 check (priority between 1 and 8),
    constraint schedules_runs_is_sane check (runs between 0 and 1000000000000000)
) with (fillfactor = 80);
create index schedules_by_next_run on pgtick.schedules (next_run_at) where next_run_at is not null and paused_at is null and cancelled_at is null
    and problem is null;
create index schedules_by_user on pgtick.schedules (user_id, next_run_at);

-- PENDING (attempt = 0) and RETRYING (attempt > 0: so many attempts failed, see errors).
-- overlap is null where runs of one job may overlap; suspect rows were lost with a worker and run alone from now on.
-- A negative priority is the same priority, out of sight of claims: it waits for the run of its job to end. So is one of 5
-- to 8, of a task with limits, until it is let in as 1 to 4. limit_key is the value of its concurrency_key, or empty.
create table pgtick.pending_executions (
    job_id uuid not null,
    scheduled_at timestamptz not null,
    due_at timestamptz not null,
    user_id text not null,
    task_key integer not null,
    priority smallint not null default 2,
    attempt smallint not null default 0,
    losses smallint not null default 0,
    suspect boolean not null default false,
    overlap text,
    expires_at timestamptz,
    origin text,
    limit_key text,
    errors jsonb,
    constraint pending_executions_times_are_sane check (scheduled_at >= '2000-01-01 00:00Z' and scheduled_at < '2200-01-01 00:00Z'
        and due_at >= '2000-01-01 00:00Z' and due_at < '2200-01-01 00:00Z'),
    constraint pending_executions_attempt_is_sane check (attempt between 0 and 32000 and losses between 0 and 32000),
    constraint pending_executions_priority_is_1_to_8 check (abs(priority) between 1 and 8),
    constraint pending_executions_overlap_is_known check (overlap in ('skip', 'queue_one', 'cancel_running', 'wait'))
) partition by range (due_at);
create index pending_executions_for_claiming on pgtick.pending_executions (priority, due_at);
create index pending_executions_by_job on pgtick.pending_executions (job_id);
create index pending_executions_by_user on pgtick.pending_executions (user_id, scheduled_at);
-- Tasks with limits only: what is held back, and what was let in and is not claimed yet.
create index pending_executions_held on pgtick.pending_executions (task_key, limit_key, due_at) where priority > 4;
create index pending_executions_let_in on pgtick.pending_executions (task_key, limit_key) where limit_key is not null and priority <= 4;

-- IN_PROGRESS: claimed by a worker, until lease_expires_at at the latest. claim_id fences: a report counts only while
-- its claim stands. Workers make the ids: claims commit asynchronously, and a sequence would give numbers that a server
-- crash took back out a second time. cancel_requested_at: it is to be stopped, also while it runs. revoked_at: its job was
-- cancelled, so it must not start, nor be tried again. awaited: another run of its job waits for its end.
create table pgtick.running_executions (
    claim_id bigint not null,
    job_id uuid not null,
    scheduled_at timestamptz not null,
    due_at timestamptz not null,
    user_id text not null,
    task_key integer not null,
    priority smallint not null,
    attempt smallint not null,
    losses smallint not null,
    suspect boolean not null,
    overlap text,
    expires_at timestamptz,
    origin text,
    worker_id bigint not null,
    claimed_at timestamptz not null default now(),
    lease_expires_at timestamptz not null,
    cancel_requested_at timestamptz,
    revoked_at timestamptz,
    awaited boolean not null default false,
    limit_key text,
    progress jsonb,
    errors jsonb,
    constraint running_executions_pkey primary key (claim_id),
    constraint running_executions_attempt_is_sane check (attempt between 1 and 32001 and losses between 0 and 32000)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- One run at a time of a job whose runs must not overlap; others pay nothing for it.
create unique index running_executions_without_overlap on pgtick.running_executions (job_id) where overlap is not null;
create index running_executions_with_limits on pgtick.running_executions (task_key, limit_key) where limit_key is not null;

-- COMPLETED, FAILED, CANCELLED, SKIPPED: final, append-only.
create table pgtick.finished_executions (
    job_id uuid not null,
    scheduled_at timestamptz not null,
    user_id text not null,
    task_key integer not null,
    status text not null,
    attempt smallint not null,
    due_at timestamptz not null,
    started_at timestamptz,
    finished_at timestamptz not null,
    worker_id bigint,
    losses smallint not null default 0,
    skipped integer,
    origin text,
    error text,
    errors jsonb,
    result jsonb,
    constraint finished_executions_pkey primary key (job_id, scheduled_at),
    constraint finished_executions_status_is_final check (status in ('COMPLETED', 'FAILED', 'CANCELLED', 'SKIPPED')),
    constraint finished_executions_attempt_is_not_negative check (attempt >= 0 and losses >= 0),
    constraint finished_executions_times_are_sane check (isfinite(scheduled_at) and isfinite(finished_at))
) partition by range (scheduled_at);
create index finished_executions_by_user on pgtick.finished_executions (user_id, scheduled_at);
create index finished_executions_not_completed on pgtick.finished_executions (status, scheduled_at, job_id) where status <> 'COMPLETED';

-- Worker processes: one row per start of a process, so that an old process and a new one are never taken for each other.
create table pgtick.workers (
    worker_id bigint generated always as identity,
    name text not null,
    state text not null default 'RUNNING',
    started_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    stopped_at timestamptz,
    drain_requested_at timestamptz,
    running integer not null default 0,
    capacity integer not null,
    pools jsonb not null default '{}',
    blocked_since timestamptz,
    task_keys integer[] not null default '{}',
    queues text[],
    version text not null,
    constraint workers_pkey primary key (worker_id),
    constraint workers_state_is_known check (state in ('RUNNING', 'DRAINING', 'STOPPED', 'LOST'))
);

-- Counts per minute, task and worker, added to by inserting: readers sum. After an hour the sums replace them, with
-- worker_id 0. lateness[i] counts starts of bucket i, whose upper bounds are in pgtick.lateness_bounds().
create table pgtick.execution_stats (
    minute timestamptz not null,
    task_key integer not null,
    worker_id bigint not null,
    started integer not null default 0,
    completed integer not null default 0,
    failed integer not null default 0,
    retried integer not null default 0,
    run_ms bigint not null default 0,
    lateness integer[] not null default '{}'
) partition by range (minute);
create index execution_stats_by_minute on pgtick.execution_stats (minute, task_key);
create index execution_stats_not_rolled_up on pgtick.execution_stats (minute) where worker_id <> 0;

-- Answers to creating requests that carried an Idempotency-Key. Not partitioned: uniqueness cannot span partitions.
create table pgtick.idempotency_keys (
    user_id text not null,
    key text not null,
    body_hash bytea not null,
    response jsonb,
    created_at timestamptz not null default now(),
    constraint idempotency_keys_pkey primary key (user_id, key)
);
create index idempotency_keys_by_age on pgtick.idempotency_keys (created_at);

-- What the janitor found wrong, one row per kind and subject, in a sentence that says what to act on.
create table pgtick.findings (
    kind text not null,
    subject text not null,
    sentence text not null,
    found_at timestamptz not null default now(),
    seen_at timestamptz not null default now(),
    constraint findings_pkey primary key (kind, subject)
);

-- What people did by hand through the functions of this schema, written by pgtick.audit(). subject is the id of an
-- execution, job or worker, or what a bulk operation was about; db_user the role that was logged in; user_id whom a
-- program acted for.
create table pgtick.audit_log (
    entry_id bigint generated always as identity,
    at timestamptz not null default now(),
    action text not null,
    subject text not null,
    db_user text not null default session_user,
    user_id text,
    details jsonb not null default '{}',
    constraint audit_log_pkey primary key (entry_id)
);
create index audit_log_by_subject on pgtick.audit_log (subject, entry_id);

-- Partitions past retention on their way out: detached as a table of that name, written to an archive, dropped.
create table pgtick.archives (
    name text not null,
    parent text not null,
    from_at timestamptz not null,
    until_at timestamptz not null,
    claimed_by text,
    claimed_until timestamptz,
    rows bigint,
    bytes bigint,
    sha256 text,
    location text,
    detached_at timestamptz not null default now(),
    written_at timestamptz,
    dropped_at timestamptz,
    constraint archives_pkey primary key (name)
);
create index archives_not_dropped on pgtick.archives (name) where dropped_at is null;

-- What is done to many executions: action and filter as they were asked for, matched as counted then. Worked off in batches
-- by pgtick.operate(); of a rerun, after_at and after_id are the place in history.
create table pgtick.operations (
    operation_id bigint generated always as identity,
    user_id text,
    action text not null,
    filter jsonb not null,
    at timestamptz,
    matched bigint not null,
    done bigint not null default 0,
    refused bigint not null default 0,
    problem text,
    created_at timestamptz not null default now(),
    worked_at timestamptz,
    finished_at timestamptz,
    after_at timestamptz,
    after_id uuid,
    constraint operations_pkey primary key (operation_id),
    constraint operations_action_is_known check (action in ('cancel', 'rerun', 'reschedule')),
    constraint operations_reschedule_has_a_time check ((action = 'reschedule') = (at is not null)),
    constraint operations_filter_is_an_object check (jsonb_typeof(filter) = 'object')
);
create index operations_to_do on pgtick.operations (operation_id) where finished_at is null;

-- The span of time that each partitioned table has partitions for, without holes: [from_at, until_at).
create table pgtick.partition_windows (
    parent text not null,
    from_at timestamptz not null,
    until_at timestamptz not null,
    step interval not null,
    constraint partition_windows_pkey primary key (parent),
    constraint partition_windows_is_a_span check (from_at <= until_at),
    constraint partition_windows_step_is_positive check (step > interval '0')
);
