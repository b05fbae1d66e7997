CREATE SCHEMA pgtick;

CREATE FUNCTION pgtick.admit(task_key integer, until timestamp with time zone, most integer, after text DEFAULT NULL::text) RETURNS TABLE(admitted integer, earliest timestamp with time zone, again_s double precision, last_key text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
#variable_conflict use_column
declare
    task pgtick.tasks;
    bound timestamptz := until;
    room integer := most;
    rate_name text := format('rate_of_task_%s', admit.task_key);
    step double precision;
    now_us double precision;
    used_up_to double precision;
    keys integer := 0;
begin
    admitted := 0;
    -- Whoever has the lock is doing this. What it commits is seen from the next statement on.
    if not pg_try_advisory_xact_lock(7067849, admit.task_key) then
        again_s := 0.01;
        return next;
        return;
    end if;
    select * into task from pgtick.tasks t where t.task_key = admit.task_key and t.priority > 4 and t.paused_at is null;
    if not found then
        return next;
        return;
    end if;
    if task.rate_per_s is not null then
        -- The time up to which the rate is used up, in a sequence: unlike a row it leaves nothing to clean up. At most a
        -- tenth of a second's worth comes together.
        bound := least(until, clock_timestamp());
        step := 1000000 / task.rate_per_s;
        now_us := extract(epoch from clock_timestamp()) * 1000000;
        execute format('select last_value from pgtick.%I', rate_name) into used_up_to;
        if used_up_to > now_us + step then
            used_up_to := now_us - step;  -- the clock was set back
        end if;
        used_up_to := greatest(used_up_to, now_us - greatest(100000, step));
        room := least(room, floor((now_us - used_up_to) / step + 0.001)::integer);
        again_s := greatest(0.01, (used_up_to + step - now_us) / 1000000);
        if room <= 0 then
            return next;
            return;
        end if;
    end if;
    if task.concurrency_key is null then
        with
        busy as materialized (
            select (select count(*) from pgtick.running_executions r where r.task_key = task.task_key and r.limit_key is not null)
                + (select count(*) from pgtick.pending_executions p
                   where p.task_key = task.task_key and p.limit_key is not null and p.priority <= 4 and p.due_at < until + interval '1 minute') as executions
        ),
        chosen as materialized (
            select p.tableoid as part, p.ctid as tid
            from pgtick.pending_executions p
            where p.task_key = task.task_key and p.priority > 4 and p.due_at < bound and p.limit_key is null
            order by p.due_at
            limit (select greatest(0, least(room, coalesce(task.max_concurrent - executions, room))) from busy)
            for update skip locked
        ),
        let_in as (
            update pgtick.pending_executions p
            set priority = p.priority - 4, limit_key = ''
            from chosen c
            where p.tableoid = c.part and p.ctid = c.tid and p.due_at < bound
            returning p.due_at
        )
        select count(*), min(l.due_at) into admitted, earliest from let_in l;
    else
        -- The value of the key, for those that have not been looked at.
        with
        new as materialized (
            select p.tableoid as part, p.ctid as tid, p.job_id
            from pgtick.pending_executions p
            where p.task_key = task.task_key and p.priority > 4 and p.due_at < bound and p.limit_key is null
            order by p.due_at
            limit 1000
            for update skip locked
        )
        update pgtick.pending_executions p
        set limit_key = left(coalesce(j.parameters #>> string_to_array(task.concurrency_key, '.'), ''), 500)
        from new n
        left join pgtick.jobs j on j.job_id = n.job_id
        where p.tableoid = n.part and p.ctid = n.tid and p.due_at < bound;
        with recursive
        -- Each key that something waits with, a few hundred at a time, going on after the last one of the last time.
        waiting (key, n) as (
            (select p.limit_key, 1 from pgtick.pending_executions p
             where p.task_key = task.task_key and p.priority > 4 and p.due_at < bound and (admit.after is null or p.limit_key > admit.after)
             order by p.limit_key limit 1)
            union all
            select (select p.limit_key from pgtick.pending_executions p
                    where p.task_key = task.task_key and p.priority > 4 and p.due_at < bound and p.limit_key > w.key
                    order by p.limit_key limit 1), w.n + 1
            from waiting w
            where w.key is not null and w.n <= 300
        ),
        busy as materialized (
            select b.key, count(*) as executions
            from (
                select r.limit_key from pgtick.running_executions r where r.task_key = task.task_key and r.limit_key is not null
                union all
                select p.limit_key from pgtick.pending_executions p
                where p.task_key = task.task_key and p.limit_key is not null and p.priority <= 4 and p.due_at < until + interval '1 minute'
            ) as b (key)
            group by b.key
        ),
        candidates as materialized (
            select c.part, c.tid, c.due_at
            from waiting w
            left join busy b on b.key = w.key
            cross join lateral (
                select p.tableoid as part, p.ctid as tid, p.due_at
                from pgtick.pending_executions p
                where p.task_key = task.task_key and p.priority > 4 and p.due_at < bound and p.limit_key = w.key
                order by p.due_at
                limit greatest(0, task.max_per_key - coalesce(b.executions, 0))
                for update skip locked
            ) as c
            where w.key is not null
        ),
        chosen as materialized (
            select c.part, c.tid from candidates c
            order by c.due_at
            limit greatest(0, least(room, coalesce(task.max_concurrent - (select sum(b.executions) from busy b), room)))
        ),
        let_in as (
            update pgtick.pending_executions p
            set priority = p.priority - 4
            from chosen c
            where p.tableoid = c.part and p.ctid = c.tid and p.due_at < bound
            returning p.due_at
        )
        select (select count(*) from let_in), (select min(l.due_at) from let_in l), (select max(w.key) from waiting w), (select count(*) from waiting)
        into admitted, earliest, last_key, keys;
        if keys <= 300 then
            last_key := null;  -- that was all of them
        else
            again_s := 0.01;
        end if;
    end if;
    if step is not null and admitted > 0 then
        perform setval(format('pgtick.%I', rate_name)::regclass, (used_up_to + admitted * step)::bigint);
        again_s := greatest(0.01, (used_up_to + (admitted + 1) * step - now_us) / 1000000);
    end if;
    return next;
end $$;

COMMENT ON FUNCTION pgtick.admit(task_key integer, until timestamp with time zone, most integer, after text) IS 'Lets executions of a task with limits that are due before `until` be claimed, `most` of them and as many as its limits leave room for. For workers.';

CREATE FUNCTION pgtick.apply_limits(task_keys integer[], rekeyed integer[] DEFAULT '{}'::integer[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    paced text;
    limited integer[];
    unlimited integer[];
    held integer := 0;
    freed integer := 0;
begin
    -- Workers that start together bring the same tasks.
    perform pg_advisory_xact_lock(7067849, 0);
    for paced in
        select r.name
        from pgtick.tasks t cross join lateral format('rate_of_task_%s', t.task_key) as r (name)
        where t.task_key = any (task_keys) and t.rate_per_s is not null and to_regclass(format('pgtick.%I', r.name)) is null
    loop
        execute format('create sequence if not exists pgtick.%I', paced);
    end loop;
    select array_agg(t.task_key) filter (where t.priority > 4), array_agg(t.task_key) filter (where t.priority <= 4) into limited, unlimited
    from pgtick.tasks t
    where t.task_key = any (task_keys);
    -- All tasks at once: millions may wait, and are not gone through for each of them. Schedules first: once they are had,
    -- what a planner was making of them is pending. Then what waits, and what runs after it, in the order of claims:
    -- they have what waits, and wait for a run of the same job that is being changed.
    if limited is not null then
        update pgtick.schedules s set priority = s.priority + 4 where s.task_key = any (limited) and s.priority <= 4;
        update pgtick.pending_executions p
        set priority = p.priority + 4 * sign(p.priority)
        where p.task_key = any (limited) and p.priority between -4 and 4 and p.limit_key is null;
        get diagnostics held = row_count;
        if limited && rekeyed then
            update pgtick.pending_executions p set limit_key = null
            where p.task_key = any (limited) and p.task_key = any (rekeyed) and p.priority > 4;
        end if;
        update pgtick.running_executions r
        set priority = r.priority + 4
        where r.task_key = any (limited) and r.priority <= 4;
    end if;
    if unlimited is not null then
        update pgtick.schedules s set priority = s.priority - 4 where s.task_key = any (unlimited) and s.priority > 4;
        -- Each of the three has an index.
        update pgtick.pending_executions p
        set priority = ((abs(p.priority) - 1) % 4 + 1) * sign(p.priority), limit_key = null
        where p.task_key = any (unlimited) and (p.priority > 4 or p.priority < -4 or p.limit_key is not null and p.priority <= 4);
        get diagnostics freed = row_count;
        update pgtick.running_executions r
        set priority = r.priority - 4, limit_key = null
        where r.task_key = any (unlimited) and r.priority > 4;
    end if;
    return held + freed;
end $$;

COMMENT ON FUNCTION pgtick.apply_limits(task_keys integer[], rekeyed integer[]) IS 'Brings what waits for tasks in line with whether they have limits or are paused; `rekeyed` are those whose concurrency_key is another one now.';

CREATE FUNCTION pgtick.audit(action text, subject text, details jsonb DEFAULT '{}'::jsonb) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    insert into pgtick.audit_log (action, subject, user_id, details)
    values (action, subject, nullif(current_setting('pgtick.user_id', true), ''), coalesce(details, '{}'))
$$;

COMMENT ON FUNCTION pgtick.audit(action text, subject text, details jsonb) IS 'Writes one entry of pgtick.audit_log. A program that acts for its own users names them first: set local pgtick.user_id = ''…''.';

CREATE FUNCTION pgtick.backfill(job_id uuid, times timestamp with time zone[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.backfill(job_id uuid, times timestamp with time zone[]) IS 'Runs a job for times past, at most 1000, except those it has run for, or is about to. Returns how many. The API computes the times of an expression.';

CREATE FUNCTION pgtick.cancel_execution(job_id uuid, scheduled_at timestamp with time zone) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    final text := pgtick.stop_execution(job_id, scheduled_at);
    standing pgtick.schedules;
begin
    if final is null then
        -- Listed as PENDING, but there is no row of its own yet.
        select * into standing from pgtick.schedules s where s.job_id = cancel_execution.job_id and s.next_run_at = cancel_execution.scheduled_at;
        if standing.expression is not null then
            raise exception 'scheduled_at: the occurrence of % of a recurring job is not pending yet; skip it instead', scheduled_at
                using errcode = 'object_not_in_prerequisite_state';
        elsif standing.job_id is not null then
            perform pgtick.cancel_job(job_id);
            return 'CANCELLED';
        end if;
    end if;
    if final in ('CANCELLED', 'IN_PROGRESS') then
        perform pgtick.audit('cancel_execution', pgtick.execution_id(scheduled_at, job_id));
    end if;
    return final;
end $$;

COMMENT ON FUNCTION pgtick.cancel_execution(job_id uuid, scheduled_at timestamp with time zone) IS 'Cancels one execution. Returns its status then: CANCELLED; IN_PROGRESS when it runs and is being stopped; another when it was over; null when there is none.';

CREATE FUNCTION pgtick.cancel_job(job_id uuid) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
    claim record;
    cancelled integer := 0;
begin
    update pgtick.jobs j set cancelled_at = now() where j.job_id = cancel_job.job_id and j.cancelled_at is null;
    -- Waits for a planner that is just making occurrences of it pending. A single run for which there is no partition yet
    -- stays there, cancelled.
    update pgtick.schedules s set cancelled_at = now()
    where s.job_id = cancel_job.job_id and s.expression is null and s.next_run_at is not null and s.cancelled_at is null;
    get diagnostics cancelled = row_count;
    delete from pgtick.schedules s where s.job_id = cancel_job.job_id and s.cancelled_at is null;
    for turn in 1..2 loop
        cancelled := cancelled + pgtick.cancel_pending(job_id);
        -- Claimed, but perhaps not started: its worker decides, and it alone knows.
        for claim in
            update pgtick.running_executions r set revoked_at = clock_timestamp()
            where r.job_id = cancel_job.job_id and r.revoked_at is null
            returning r.claim_id, r.due_at > clock_timestamp() as ahead
        loop
            perform pgtick.tell('pgtick_revoke', claim.claim_id::text);
            cancelled := cancelled + claim.ahead::integer;
        end loop;
    end loop;
    perform pgtick.audit('cancel', job_id::text, jsonb_build_object('cancelled', cancelled));
    return cancelled;
end $$;

COMMENT ON FUNCTION pgtick.cancel_job(job_id uuid) IS 'Cancels what has not started of a job, retries included, for good; what runs goes on. Returns how many executions that were.';

CREATE FUNCTION pgtick.cancel_pending(job_id uuid, first_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, last_at timestamp with time zone DEFAULT 'infinity'::timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
    cancelled integer;
begin
    with
    waiting as (
        delete from pgtick.pending_executions p
        where p.job_id = cancel_pending.job_id and p.scheduled_at between first_at and last_at
        returning p.*
    ),
    over as (
        insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, losses, origin,
            error, errors)
        select job_id, pgtick.kept_at('finished_executions', scheduled_at), user_id, task_key, 'CANCELLED', attempt, due_at, clock_timestamp(),
            losses, origin, errors -> -1 ->> 'error', errors
        from waiting
        on conflict do nothing
    )
    select count(*) into cancelled from waiting;
    return cancelled;
end $$;

COMMENT ON FUNCTION pgtick.cancel_pending(job_id uuid, first_at timestamp with time zone, last_at timestamp with time zone) IS 'The part of cancelling that sees to pending executions: of a job, those scheduled from first_at to last_at. Returns how many.';

CREATE FUNCTION pgtick.check_policies(policies jsonb, recurring boolean) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;

COMMENT ON FUNCTION pgtick.check_policies(policies jsonb, recurring boolean) IS 'The policies as they are stored. Raises for what is no policy; exclusions are checked by a planner, which stops the job visibly.';

CREATE FUNCTION pgtick.check_tries(max_retries jsonb, timeout_s jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    if not (case jsonb_typeof(max_retries) when 'null' then true when 'number' then max_retries #>> '{}' ~ '^\d+$' and max_retries::numeric <= 1000
            else max_retries is null end) then
        raise exception 'max_retries: must be a whole number from 0 to 1000' using errcode = 'invalid_parameter_value';
    elsif not (case jsonb_typeof(timeout_s) when 'null' then true when 'number' then timeout_s::numeric > 0 and timeout_s::numeric <= 31536000
            else timeout_s is null end) then
        raise exception 'timeout_s: must be a number above 0, at most 31536000' using errcode = 'invalid_parameter_value';
    end if;
end $_$;

COMMENT ON FUNCTION pgtick.check_tries(max_retries jsonb, timeout_s jsonb) IS 'Raises for a number of retries or a timeout that a job cannot have. null: those of its task.';

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
    limit_key text,
    errors jsonb,
    CONSTRAINT pending_executions_attempt_is_sane CHECK ((((attempt >= 0) AND (attempt <= 32000)) AND ((losses >= 0) AND (losses <= 32000)))),
    CONSTRAINT pending_executions_overlap_is_known CHECK ((overlap = ANY (ARRAY['skip'::text, 'queue_one'::text, 'cancel_running'::text, 'wait'::text]))),
    CONSTRAINT pending_executions_priority_is_1_to_8 CHECK (((abs(priority) >= 1) AND (abs(priority) <= 8))),
    CONSTRAINT pending_executions_times_are_sane CHECK (((scheduled_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (scheduled_at < '2200-01-01 00:00:00+00'::timestamp with time zone) AND (due_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (due_at < '2200-01-01 00:00:00+00'::timestamp with time zone)))
)
PARTITION BY RANGE (due_at);

CREATE FUNCTION pgtick.claim_alone(claim_ids bigint[], executions pgtick.pending_executions[], worker_id integer, lease interval) RETURNS TABLE(claim_id bigint, job_id uuid, scheduled_at timestamp with time zone, due_at timestamp with time zone, task_key integer, priority smallint, attempt smallint, losses smallint, suspect boolean, expires_at timestamp with time zone, user_id text)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
    return query
    with
    gone as (
        select * from unnest(claim_ids, executions) as n (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses,
            suspect, overlap, expires_at, origin, limit_key, errors)
    ),
    -- The unique index lets only one in, and what came too late to start keeps out of it. Behind one whose turn has come
    -- there may be more. Jobs come in one order, so that two claims of the same ones wait for each other in no circle.
    alone as (
        insert into pgtick.running_executions as r (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect,
            overlap, expires_at, origin, worker_id, lease_expires_at, awaited, limit_key, errors)
        select claim_id, job_id, scheduled_at, due_at, user_id, task_key, case when limit_key is null then priority else priority + 4 end,
            attempt + 1, losses, suspect, overlap, expires_at, origin, claim_alone.worker_id, clock_timestamp() + lease, overlap = 'wait',
            limit_key, errors
        from gone
        where expires_at is null or expires_at > clock_timestamp() or attempt + losses > 0
        order by job_id, due_at
        on conflict (job_id) where overlap is not null do nothing
        returning r.claim_id, r.job_id, r.scheduled_at, r.due_at, r.task_key, r.priority, r.attempt, r.losses, r.suspect, r.expires_at, r.user_id
    ),
    -- A run of the same job is not over. What is not due yet goes back and is tried again; what is waits out of sight of
    -- claims (negative priority), and pgtick.settle_waiting sees to it. Meanwhile a limit that let it in has its place for
    -- another.
    kept_out as (
        select g.*, g.due_at <= clock_timestamp() as waits
        from gone g
        where not exists (select from alone a where a.job_id = g.job_id and a.scheduled_at = g.scheduled_at)
    ),
    put_back as (
        insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt, losses, suspect, overlap,
            expires_at, origin, limit_key, errors)
        select job_id, scheduled_at, due_at, user_id, task_key,
            case when not waits then priority when limit_key is null then -priority else -(priority + 4) end, attempt, losses, suspect, overlap,
            expires_at, origin, case when not waits then limit_key end, errors
        from kept_out
    )
    select * from alone
    union all
    -- Told under no claim: 0 for those that wait, -1 for those that went back.
    select case when k.waits then 0 else -1 end, k.job_id, k.scheduled_at, k.due_at, k.task_key, k.priority, k.attempt, k.losses, k.suspect,
        k.expires_at, k.user_id
    from kept_out k;
end $$;

COMMENT ON FUNCTION pgtick.claim_alone(claim_ids bigint[], executions pgtick.pending_executions[], worker_id integer, lease interval) IS 'The part of a claim that sees to executions whose runs must not overlap: those free to run, and those kept out. Meant for programs.';

CREATE FUNCTION pgtick.claim_past(claimant text, lease interval DEFAULT '00:05:00'::interval) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    claimed text;
begin
    update pgtick.archives a set claimed_by = claimant, claimed_until = now() + lease
    where a.name = (select w.name from pgtick.archives w
                    where w.dropped_at is null and (w.claimed_until is null or w.claimed_until < now() or w.claimed_by = claimant)
                    order by w.name limit 1 for update skip locked)
    returning a.name into claimed;
    if claimed is not null and to_regclass(format('pgtick.%I', claimed)) is not null then
        execute format('grant select on pgtick.%I to %I', claimed, session_user);
    end if;
    return claimed;
end $$;

COMMENT ON FUNCTION pgtick.claim_past(claimant text, lease interval) IS 'Claims the oldest detached partition that nobody works on, and lets the caller read it. Returns its name, or null.';

CREATE FUNCTION pgtick.create_job(task_id text, schedule text DEFAULT 'now'::text, parameters jsonb DEFAULT '{}'::jsonb, user_id text DEFAULT 'default'::text, timezone text DEFAULT NULL::text, max_retries integer DEFAULT NULL::integer, timeout_s double precision DEFAULT NULL::double precision, policies jsonb DEFAULT NULL::jsonb, traceparent text DEFAULT NULL::text, tracestate text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.create_job(task_id text, schedule text, parameters jsonb, user_id text, timezone text, max_retries integer, timeout_s double precision, policies jsonb, traceparent text, tracestate text) IS 'Creates a job in the caller''s transaction and returns its id. schedule: now, an ISO 8601 date (with an offset, or local in timezone), or a cron expression. policies: as in the API, for example {"overlap": "allow"}. traceparent, tracestate: of the trace it is part of, as W3C Trace Context writes them.';

CREATE FUNCTION pgtick.detach_partition(partition text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
    old record;
    past text := pgtick.past_name(partition);
begin
    select p.* into old from pgtick.partitions p where p.partition = detach_partition.partition;
    if not found then
        return null; -- another worker was first
    elsif old.parent <> 'finished_executions' then
        raise exception 'partition: % is not one of finished_executions', partition using errcode = 'invalid_parameter_value';
    elsif old.until_at > now() then
        raise exception 'partition: % is not over before %', partition, old.until_at using errcode = 'invalid_parameter_value';
    end if;
    execute format('alter table pgtick.finished_executions detach partition pgtick.%I', partition);
    execute format('alter table pgtick.%I rename to %I', partition, past);
    update pgtick.partition_windows w set from_at = least(greatest(w.from_at, old.until_at), w.until_at) where w.parent = old.parent;
    insert into pgtick.archives (name, parent, from_at, until_at) values (past, old.parent, old.from_at, old.until_at);
    return past;
end $$;

COMMENT ON FUNCTION pgtick.detach_partition(partition text) IS 'Takes a past partition out of finished_executions and returns the name of the table it became; null when it was gone.';

CREATE FUNCTION pgtick.drain_worker(worker text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.drain_worker(worker text) IS 'Asks workers to finish what they run, claim nothing more, and end: by worker_id, by name (host:pid), or all of a host. Returns how many.';

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

CREATE FUNCTION pgtick.drop_past(past text, expected_rows bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '2s'
    AS $$
declare
    found_rows bigint;
    old pgtick.archives;
begin
    select * into old from pgtick.archives a where a.name = past and a.dropped_at is null for update;
    if not found then
        return false;
    end if;
    if to_regclass(format('pgtick.%I', past)) is not null then
        if expected_rows is not null then
            execute format('select count(*) from pgtick.%I', past) into found_rows;
            if found_rows <> expected_rows then
                raise exception 'past: % has % rows, not the % that were archived', past, found_rows, expected_rows using errcode = 'data_exception';
            end if;
        end if;
        execute format('drop table pgtick.%I', past);
    end if;
    if old.parent = 'jobs' then
        perform pgtick.forget_keys(old.until_at);
    end if;
    update pgtick.archives a set dropped_at = now(), claimed_until = null where a.name = past;
    return true;
end $$;

COMMENT ON FUNCTION pgtick.drop_past(past text, expected_rows bigint) IS 'Drops a detached partition if it has as many rows as were archived (null: without looking). Returns whether it was there.';

CREATE FUNCTION pgtick.edit_job(job_id uuid, changes jsonb, action text DEFAULT 'edit'::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.edit_job(job_id uuid, changes jsonb, action text) IS 'Changes a job: {"schedule", "timezone", "parameters", "policies", "max_retries", "timeout_s"}, those that are given. Pending executions ahead are replaced; what is due or runs goes on as it was. Returns whether anything changed.';

CREATE FUNCTION pgtick.ensure_partitions(runway interval DEFAULT '48:00:00'::interval, since timestamp with time zone DEFAULT (now() - '02:00:00'::interval)) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
    select pgtick.extend_partitions('pending_executions', least(since, now() - interval '2 hours'), now() + runway)
         + pgtick.extend_partitions('finished_executions', least(since, now() - interval '2 hours'), now() + runway)
         + pgtick.extend_partitions('jobs', now() - interval '1 day', now() + greatest(runway, interval '2 days'))
         + pgtick.extend_partitions('execution_stats', now() - interval '1 day', now() + greatest(runway, interval '2 days'))
$$;

COMMENT ON FUNCTION pgtick.ensure_partitions(runway interval, since timestamp with time zone) IS 'Makes the missing partitions from since until now() + runway of every partitioned table; returns how many it made.';

CREATE FUNCTION pgtick.execution_id(scheduled_at timestamp with time zone, job_id uuid) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((((EXTRACT(epoch FROM scheduled_at) * (1000000)::numeric))::bigint || '-'::text) || job_id);

COMMENT ON FUNCTION pgtick.execution_id(scheduled_at timestamp with time zone, job_id uuid) IS 'The printed id of an execution: <scheduled_at in µs>-<job_id>.';

CREATE FUNCTION pgtick.explain(id text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;

COMMENT ON FUNCTION pgtick.explain(id text) IS 'Why is it not running? One sentence about an execution id, or about a job id (what runs or comes next).';

CREATE FUNCTION pgtick.explain_waiting(p pgtick.pending_executions) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.explain_waiting(p pgtick.pending_executions) IS 'The part of pgtick.explain() for a pending execution.';

CREATE FUNCTION pgtick.extend_partitions(parent text, from_at timestamp with time zone, until_at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    origin constant timestamptz := '2000-01-01 00:00Z';
    span pgtick.partition_windows;
    edge timestamptz;
    gone record;
    made integer := 0;
begin
    -- The row lock makes one maker wait for another.
    select * into strict span from pgtick.partition_windows w where w.parent = extend_partitions.parent for update;
    if span.until_at < extend_partitions.from_at - interval '7 days' then
        -- Nobody made partitions for long: begin again, without filling the hole.
        span.from_at := date_bin(span.step, extend_partitions.from_at, origin);
        span.until_at := span.from_at;
    elsif span.until_at < extend_partitions.from_at then
        -- Nor for days: those of now cannot wait for hundreds before them, which come back like missing ones.
        span.until_at := date_bin(span.step, extend_partitions.from_at, origin);
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
    -- What somebody has dropped or detached comes back: a day of it each time, what is nearest to now first. Where it
    -- cannot, that must not keep new ones from being made.
    for gone in
        select m.* from pgtick.missing_partitions() m where m.parent = span.parent
        order by abs(extract(epoch from m.from_at - now())) limit 24
    loop
        begin
            perform pgtick.make_partition(gone.parent, gone.from_at, gone.until_at);
            made := made + 1;
        exception when others then
            raise warning 'partition % is missing, and cannot be made: %', gone.partition, sqlerrm;
        end;
    end loop;
    update pgtick.partition_windows w set from_at = span.from_at, until_at = span.until_at
        where w.parent = span.parent and (w.from_at, w.until_at) is distinct from (span.from_at, span.until_at);
    return made;
end $$;

CREATE FUNCTION pgtick.forget_keys(before timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    forgotten bigint;
begin
    delete from pgtick.idempotency_keys k
    where k.created_at < before
      and not exists (
          -- Not only jobs are made once: an operation has a number.
          select from jsonb_array_elements_text(k.response -> 'job_ids') as made (id)
          join pgtick.jobs j on j.job_id = case when made.id like '________-____-____-____-____________' then made.id::uuid end
      );
    get diagnostics forgotten = row_count;
    return forgotten;
end $$;

COMMENT ON FUNCTION pgtick.forget_keys(before timestamp with time zone) IS 'Deletes idempotency keys from before that time whose jobs are no longer there: what comes with one again makes a new job. Returns how many.';

CREATE FUNCTION pgtick.free_unlimited() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    unlimited integer[];
begin
    with recursive
    -- Each task that something is held back for: one look at the index each.
    held (task_key) as (
        (select p.task_key from pgtick.pending_executions p where p.priority > 4 order by p.task_key limit 1)
        union all
        select (select p.task_key from pgtick.pending_executions p where p.priority > 4 and p.task_key > h.task_key order by p.task_key limit 1)
        from held h
        where h.task_key is not null
    )
    select array_agg(t.task_key) into unlimited from held h join pgtick.tasks t using (task_key) where t.priority <= 4;
    return case when unlimited is null then 0 else pgtick.apply_limits(unlimited) end;
end $$;

COMMENT ON FUNCTION pgtick.free_unlimited() IS 'Lets go what is held back for tasks without limits: it came in while their limits were being lifted. Returns how many executions. For workers.';

CREATE FUNCTION pgtick.grant_roles() RETURNS text[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    -- Functions that only look.
    looking constant text[] := array['execution_id', 'explain', 'in_words', 'is_live', 'lateness_bounds', 'lateness_quantile', 'next_runs', 'uuid7_floor', 'uuid7_time'];
    -- What people on call do, all that leaves an audit entry. It runs as its owner: they have no rights on the tables.
    acting constant text[] := array['create_job', 'cancel_execution', 'reschedule', 'ensure_partitions'] || array(
        select p.proname::text from pg_proc p where p.pronamespace = 'pgtick'::regnamespace and p.prosrc like '%pgtick.audit(%' and p.proname <> 'grant_roles');
    given text[] := array(select rolname from pg_roles where rolname in ('pgtick_app', 'pgtick_operator', 'pgtick_reader') order by 1);
    thing record;
    taker text;
begin
    revoke all on schema pgtick from public;
    revoke all on all functions in schema pgtick from public;
    for thing in
        select p.oid::regprocedure as signature from pg_proc p
        where p.pronamespace = 'pgtick'::regnamespace and p.prokind = 'f' and not p.prosecdef
          and (p.proname = any (acting) or p.proname in ('explain', 'next_runs'))
    loop
        execute format('alter function %s security definer', thing.signature);
    end loop;
    foreach taker in array given loop
        execute format('grant usage on schema pgtick to %I', taker);
        if taker = 'pgtick_app' then
            execute format('grant usage on all sequences in schema pgtick to %I', taker);
        end if;
        for thing in
            select p.oid::regprocedure as signature from pg_proc p
            where p.pronamespace = 'pgtick'::regnamespace and p.prokind = 'f'
              and (taker = 'pgtick_app' or p.proname = any (looking) or taker = 'pgtick_operator' and p.proname = any (acting))
              and p.proname <> 'grant_roles'
        loop
            execute format('grant execute on function %s to %I', thing.signature, taker);
        end loop;
        for thing in
            select c.relname as name, c.relkind = 'v' as is_view from pg_class c
            where c.relnamespace = 'pgtick'::regnamespace and c.relkind in ('r', 'p', 'v')
              and (not c.relispartition or taker = 'pgtick_app' and c.relname like 'pending\_executions\_%')
        loop
            if taker = 'pgtick_app' then
                execute format('grant select on pgtick.%I to %I', thing.name, taker);
                if thing.name = 'audit_log' then
                    execute format('grant insert on pgtick.%I to %I', thing.name, taker);
                elsif not thing.is_view and thing.name not in ('alembic_version', 'partition_windows') then
                    execute format('grant insert, update, delete on pgtick.%I to %I', thing.name, taker);
                end if;
            elsif thing.is_view or thing.name in ('tasks', 'workers', 'execution_stats', 'findings', 'partition_windows')
                or taker = 'pgtick_operator' and thing.name in ('jobs', 'schedules', 'audit_log', 'archives') then
                execute format('grant select on pgtick.%I to %I', thing.name, taker);
            end if;
        end loop;
    end loop;
    return given;
end $$;

COMMENT ON FUNCTION pgtick.grant_roles() IS 'Grants what the roles of migrations/roles.sql may do to those that exist, and returns them. Runs at the end of each migration.';

CREATE FUNCTION pgtick.in_words(span interval) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select case
        when s < 1 then round(s * 1000) || ' ms'
        when s < 120 then round(s, 1) || ' s'
        when s < 7200 then round(s / 60) || ' min'
        when s < 172800 then round(s / 3600, 1) || ' h'
        else round(s / 86400) || ' days'
    end
    from (select abs(extract(epoch from span))) as span_s (s)
$$;

COMMENT ON FUNCTION pgtick.in_words(span interval) IS 'A span of time as people say it: 250 ms, 12.5 s, 90 min, 3.0 h, 12 days.';

CREATE FUNCTION pgtick.insert_jobs(job_ids uuid[], user_ids text[], task_ids text[], schedule_types text[], expressions text[], timezones text[], run_ats timestamp with time zone[], due_ats timestamp with time zone[], parameters text[], max_retries smallint[], timeouts_s double precision[], policies text[], overlap_rules text[], expire_ats timestamp with time zone[], anchor_ats timestamp with time zone[], zone_version text, traces text[] DEFAULT NULL::text[]) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.insert_jobs(job_ids uuid[], user_ids text[], task_ids text[], schedule_types text[], expressions text[], timezones text[], run_ats timestamp with time zone[], due_ats timestamp with time zone[], parameters text[], max_retries smallint[], timeouts_s double precision[], policies text[], overlap_rules text[], expire_ats timestamp with time zone[], anchor_ats timestamp with time zone[], zone_version text, traces text[]) IS 'Writes validated jobs, one array element a job, and returns when the first is due. Meant for programs; people call create_job.';

CREATE FUNCTION pgtick.instant_of(local timestamp without time zone, timezone text) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.instant_of(local timestamp without time zone, timezone text) IS 'The instant at which clocks of a zone show a time: one that they show twice is the first, one that they jump over is the jump.';

CREATE FUNCTION pgtick.is_live(last_seen_at timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (last_seen_at > (now() - '00:01:00'::interval));

COMMENT ON FUNCTION pgtick.is_live(last_seen_at timestamp with time zone) IS 'Whether a worker that was seen then counts as alive: they say so every PGTICK_RENEW_S.';

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
    trace jsonb,
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
    CONSTRAINT jobs_timeout_is_sane CHECK (((timeout_s > (0)::double precision) AND (timeout_s <= (31536000)::double precision))),
    CONSTRAINT jobs_trace_is_an_object CHECK ((jsonb_typeof(trace) = 'object'::text))
)
PARTITION BY RANGE (job_id);

CREATE FUNCTION pgtick.job_named(job_id uuid) RETURNS pgtick.jobs
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.job_named(job_id uuid) IS 'The job of that id; raises when there is none, or when it was cancelled.';

CREATE FUNCTION pgtick.job_to_do(job_id uuid, OUT parameters text, OUT max_retries smallint, OUT timeout_s double precision, OUT trace text) RETURNS record
    LANGUAGE plpgsql STABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    select j.parameters::text, j.max_retries, j.timeout_s, j.trace::text into parameters, max_retries, timeout_s, trace
    from pgtick.jobs j where j.job_id = job_to_do.job_id;
end $$;

COMMENT ON FUNCTION pgtick.job_to_do(job_id uuid, OUT parameters text, OUT max_retries smallint, OUT timeout_s double precision, OUT trace text) IS 'What a worker must know of a job to run it; nulls for a job that is gone. Meant for programs.';

CREATE FUNCTION pgtick.kept_at(parent text, at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    -- Seconds become microseconds, so that different times stay different, and in order.
    select coalesce((
        select case
            when at < w.from_at
                then w.from_at + extract(epoch from greatest(at, '2000-01-01 00:00Z') - '2000-01-01 00:00Z'::timestamptz) * interval '1 microsecond'
            when at >= w.until_at then now()
            else at
        end
        from pgtick.partition_windows w
        where w.parent = kept_at.parent
    ), at)
$$;

COMMENT ON FUNCTION pgtick.kept_at(parent text, at timestamp with time zone) IS 'The time under which a table keeps something of that time: that time, or where its partition is gone already, one at the beginning of what is kept.';

CREATE FUNCTION pgtick.lateness_bounds() RETURNS integer[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 60000];

COMMENT ON FUNCTION pgtick.lateness_bounds() IS 'Upper bounds in ms of the buckets of execution_stats.lateness; one more bucket holds what is later still.';

CREATE FUNCTION pgtick.lateness_quantile(histogram bigint[], quantile double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.lateness_quantile(histogram bigint[], quantile double precision) IS 'A quantile of a lateness histogram in ms, as if each bucket were filled evenly; what lies beyond the last bound counts as that bound.';

CREATE FUNCTION pgtick.lock_job(job_id uuid) RETURNS pgtick.jobs
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform from pgtick.jobs j where j.job_id = lock_job.job_id for update;
    perform from pgtick.schedules s where s.job_id = lock_job.job_id for update;
    return pgtick.job_named(job_id);
end $$;

COMMENT ON FUNCTION pgtick.lock_job(job_id uuid) IS 'The job of that id, locked with its schedule; raises as job_named does.';

CREATE FUNCTION pgtick.make_partition(parent text, from_at timestamp with time zone, until_at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    name text := parent || to_char(from_at at time zone 'UTC', '_YYYYMMDD_HH24MI');
    lower_bound text := case parent when 'jobs' then pgtick.uuid7_floor(from_at)::text else to_char(from_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') end;
    upper_bound text := case parent when 'jobs' then pgtick.uuid7_floor(until_at)::text else to_char(until_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') end;
    taker text;
    -- Rows leave pending partitions as fast as they come: vacuum by count, not by a share of a moving size.
    storage text := case parent when 'pending_executions'
        then 'with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0)' else '' end;
begin
    if exists (select from pg_inherits i where i.inhrelid = to_regclass(format('pgtick.%I', name))) then
        return;
    elsif to_regclass(format('pgtick.%I', name)) is null then
        -- LIKE and ATTACH take no lock on the parent that a long SELECT or an INSERT would block; CREATE … PARTITION OF does.
        execute format('create table pgtick.%I (like pgtick.%I including all) %s', name, parent, storage);
    end if;
    if parent = 'pending_executions' then
        -- Workers claim from the partition of the hour itself, so who may take rows out of the parent may here.
        for taker in
            select distinct a.grantee::regrole::text
            from pg_class c cross join lateral aclexplode(c.relacl) a
            where c.oid = 'pgtick.pending_executions'::regclass and a.privilege_type = 'DELETE' and a.grantee <> c.relowner and a.grantee <> 0
        loop
            execute format('grant select, update, delete on pgtick.%I to %s', name, taker);
        end loop;
    end if;
    execute format('alter table pgtick.%I attach partition pgtick.%I for values from (%L) to (%L)', parent, name, lower_bound, upper_bound);
end $$;

CREATE TABLE pgtick.operations (
    operation_id bigint NOT NULL,
    user_id text,
    action text NOT NULL,
    filter jsonb NOT NULL,
    at timestamp with time zone,
    matched bigint NOT NULL,
    done bigint DEFAULT 0 NOT NULL,
    refused bigint DEFAULT 0 NOT NULL,
    problem text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worked_at timestamp with time zone,
    finished_at timestamp with time zone,
    after_at timestamp with time zone,
    after_id uuid,
    CONSTRAINT operations_action_is_known CHECK ((action = ANY (ARRAY['cancel'::text, 'rerun'::text, 'reschedule'::text]))),
    CONSTRAINT operations_filter_is_an_object CHECK ((jsonb_typeof(filter) = 'object'::text)),
    CONSTRAINT operations_reschedule_has_a_time CHECK (((action = 'reschedule'::text) = (at IS NOT NULL)))
);

CREATE FUNCTION pgtick.matching(op pgtick.operations, max_count integer) RETURNS TABLE(job_id uuid, scheduled_at timestamp with time zone, standing boolean)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
#variable_conflict use_column
declare
    of_user text := op.filter ->> 'user_id';
    of_task integer := (op.filter ->> 'task_key')::integer;
    from_at timestamptz := coalesce((op.filter ->> 'start_time')::timestamptz, '-infinity');
    until_at timestamptz := coalesce((op.filter ->> 'end_time')::timestamptz, 'infinity');
    with_error text := lower(op.filter ->> 'error');
    statuses text[] := array(select jsonb_array_elements_text(op.filter -> 'statuses'));
    newest_job uuid := pgtick.uuid7_floor(op.created_at + interval '1 ms');
begin
    if op.action = 'rerun' then
        -- In the order of history, on from where the last batch ended. What was run again already is left out.
        return query
        select f.job_id, f.scheduled_at, false
        from pgtick.finished_executions f
        where f.status = any (statuses) and f.status <> 'COMPLETED'
          and f.scheduled_at >= greatest(from_at, op.after_at) and f.scheduled_at < least(until_at, op.created_at)
          and (f.scheduled_at, f.job_id) > (coalesce(op.after_at, '-infinity'), coalesce(op.after_id, '00000000-0000-0000-0000-000000000000'))
          and (of_user is null or f.user_id = of_user) and (of_task is null or f.task_key = of_task)
          and (with_error is null or strpos(lower(f.error), with_error) > 0)
          and exists (select from pgtick.jobs j join pgtick.tasks t using (task_id) where j.job_id = f.job_id and j.cancelled_at is null)
          and not exists (select from pgtick.pending_executions o
                          where o.job_id = f.job_id and o.origin = 'retry of ' || pgtick.execution_id(f.scheduled_at, f.job_id))
          and not exists (select from pgtick.running_executions o
                          where o.job_id = f.job_id and o.origin = 'retry of ' || pgtick.execution_id(f.scheduled_at, f.job_id))
          and not exists (select from pgtick.finished_executions o
                          where o.job_id = f.job_id and o.scheduled_at > f.scheduled_at
                            and o.origin = 'retry of ' || pgtick.execution_id(f.scheduled_at, f.job_id))
        order by f.scheduled_at, f.job_id
        limit max_count;
        return;
    end if;
    return query
    select w.job_id, w.scheduled_at, w.standing
    from (
        (select p.job_id, p.scheduled_at, false as standing
         from pgtick.pending_executions p
         where case when p.attempt = 0 then 'PENDING' else 'RETRYING' end = any (statuses)
           and (of_user is null or p.user_id = of_user) and (of_task is null or p.task_key = of_task)
           and p.scheduled_at >= from_at and p.scheduled_at < until_at and p.job_id < newest_job
           and (with_error is null or strpos(lower(p.errors -> -1 ->> 'error'), with_error) > 0)
           and (op.action = 'cancel' or p.attempt = 0 and p.origin is null and p.scheduled_at <> op.at
                and exists (select from pgtick.jobs j where j.job_id = p.job_id and j.schedule_type <> 'CRON'))
         limit max_count)
        union all
        -- In the order in which reports lock them.
        (select r.job_id, r.scheduled_at, false
         from pgtick.running_executions r
         where op.action = 'cancel' and 'IN_PROGRESS' = any (statuses) and r.cancel_requested_at is null
           and (of_user is null or r.user_id = of_user) and (of_task is null or r.task_key = of_task)
           and r.scheduled_at >= from_at and r.scheduled_at < until_at and r.job_id < newest_job
           and (with_error is null or strpos(lower(r.errors -> -1 ->> 'error'), with_error) > 0)
         order by r.claim_id
         limit max_count)
        union all
        -- Single runs beyond the partitions made so far.
        (select s.job_id, s.next_run_at, true
         from pgtick.schedules s
         where s.expression is null and s.cancelled_at is null and 'PENDING' = any (statuses) and with_error is null
           and (of_user is null or s.user_id = of_user) and (of_task is null or s.task_key = of_task)
           and s.next_run_at >= from_at and s.next_run_at < until_at and s.job_id < newest_job
           and (op.action = 'cancel' or s.next_run_at <> op.at)
         limit max_count)
    ) as w
    limit max_count;
end $$;

COMMENT ON FUNCTION pgtick.matching(op pgtick.operations, max_count integer) IS 'Executions that an operation is still to do something to.';

CREATE FUNCTION pgtick.missing_partitions() RETURNS TABLE(parent text, partition text, from_at timestamp with time zone, until_at timestamp with time zone)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    AS $$
    select w.parent, hour.partition, hour.at, hour.at + w.step
    from pgtick.partition_windows w
    cross join lateral (
        select at, w.parent || to_char(at, '_YYYYMMDD_HH24MI') as partition from generate_series(w.from_at, w.until_at - w.step, w.step) as at
    ) as hour
    where not exists (select from pg_inherits i where i.inhrelid = to_regclass(format('pgtick.%I', hour.partition)))
    order by w.parent, hour.at
$$;

COMMENT ON FUNCTION pgtick.missing_partitions() IS 'Partitions inside of partition_windows that are none: dropped or detached by hand.';

CREATE FUNCTION pgtick.next_runs(job_id uuid DEFAULT NULL::uuid, max_count integer DEFAULT 20) RETURNS TABLE(scheduled_at timestamp with time zone, starts_in interval, job uuid, task_id text, state text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.next_runs(job_id uuid, max_count integer) IS 'What comes next, of one job or of all, as far as it is pending or planned: of a recurring job, those of the coming minute and the one after.';

CREATE FUNCTION pgtick.operate(batch integer, only_id bigint DEFAULT NULL::bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_variable
declare
    op pgtick.operations;
    found_one record;
    seen integer := 0;
    did integer := 0;
    refused integer := 0;
    now_is text;
    reason text;
    at timestamptz := clock_timestamp();
    is_last boolean;
begin
    select * into op from pgtick.operations o
    where o.finished_at is null and (only_id is null or o.operation_id = only_id)
    order by o.operation_id limit 1
    for update skip locked;
    if not found then
        return false;
    end if;
    perform set_config('pgtick.user_id', coalesce(op.user_id, ''), true);
    begin
        for found_one in select * from pgtick.matching(op, batch) loop
            seen := seen + 1;
            op.after_at := found_one.scheduled_at;
            op.after_id := found_one.job_id;
            -- What has moved on meanwhile, or is locked by somebody, does not keep the others from their turn.
            begin
                if op.action = 'cancel' and found_one.standing then
                    perform pgtick.cancel_job(found_one.job_id);
                elsif op.action = 'cancel' then
                    now_is := pgtick.stop_execution(found_one.job_id, found_one.scheduled_at);
                    if now_is in ('CANCELLED', 'IN_PROGRESS') is not true then
                        raise exception 'execution % is %', pgtick.execution_id(found_one.scheduled_at, found_one.job_id),
                            coalesce('over: ' || now_is, 'no more') using errcode = 'object_not_in_prerequisite_state';
                    end if;
                elsif op.action = 'rerun' then
                    perform pgtick.start_anew(pgtick.job_named(found_one.job_id), at + seen * interval '1 microsecond',
                        'retry of ' || pgtick.execution_id(found_one.scheduled_at, found_one.job_id));
                else
                    perform pgtick.reschedule(found_one.job_id, op.at);
                end if;
                did := did + 1;
            exception when others then
                if sqlstate like '57%' or sqlstate like '53%' or sqlstate like '08%' then
                    raise;
                end if;
                refused := refused + 1;
                reason := sqlerrm;
            end;
        end loop;
    exception when data_exception then
        -- Its filter makes no sense: put in by hand, it would be the oldest for ever.
        reason := sqlerrm;
    end;
    -- Of what waits, each batch finds what is left: when it could do nothing, there is nothing left to be done. Of those that
    -- were counted first, the rest had moved on before their batch came.
    is_last := seen < batch or (did = 0 and op.action <> 'rerun');
    update pgtick.operations o
    set done = o.done + did, refused = greatest(o.refused + refused, case when is_last then o.matched - o.done - did end),
        problem = coalesce(reason, o.problem), after_at = op.after_at, after_id = op.after_id,
        worked_at = clock_timestamp(), finished_at = case when is_last then clock_timestamp() end
    where o.operation_id = op.operation_id;
    if did > 0 and op.action = 'rerun' then
        perform pgtick.tell_due(at);
    end if;
    return true;
end $$;

COMMENT ON FUNCTION pgtick.operate(batch integer, only_id bigint) IS 'Does one batch of the oldest operation that is not finished, or of one. Returns whether there was any.';

CREATE FUNCTION pgtick.past_name(partition text) RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    -- The time makes it unique: for a very late row the partition may be made, and retired, a second time.
    select 'past_' || partition || to_char(clock_timestamp() at time zone 'UTC', '_YYYYMMDDHH24MISSUS')
$$;

COMMENT ON FUNCTION pgtick.past_name(partition text) IS 'The name of the table that a partition becomes when it is detached.';

CREATE FUNCTION pgtick.pause_job(job_id uuid, note text DEFAULT NULL::text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.pause_job(job_id uuid, note text) IS 'Stops a job from making executions. What was pending ahead is taken back; what is due or runs goes on. Returns how many were taken back.';

CREATE FUNCTION pgtick.pause_task(task_id text, note text DEFAULT NULL::text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.pause_task(task_id text, note text) IS 'Holds back all executions of a task, until it is resumed: what is due meanwhile waits, jobs can be posted. What runs, or was claimed a moment ahead, goes on. Returns how many are due and held.';

CREATE FUNCTION pgtick.plan_anew(job_id uuid) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.plan_anew(job_id uuid) IS 'Has the planner compute the next time of a recurring job from now on. For use under lock_job.';

CREATE FUNCTION pgtick.read_instant(text text) RETURNS timestamp with time zone
    LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    -- The shape that app/schedule/dates.py has, with an offset.
    if text !~ '^\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?([Zz]|[+-](0\d|1[0-5])(:?[0-5]\d)?)$' then
        return null;
    end if;
    return regexp_replace(text, '(\.\d{6})\d+', '\1')::timestamptz;
exception when datetime_field_overflow or invalid_datetime_format then
    return null;
end $_$;

COMMENT ON FUNCTION pgtick.read_instant(text text) IS 'The instant that a date and time with an offset names; null for what is none.';

CREATE FUNCTION pgtick.read_schedule(schedule text, timezone text, OUT kind text, OUT expression text, OUT at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;

COMMENT ON FUNCTION pgtick.read_schedule(schedule text, timezone text, OUT kind text, OUT expression text, OUT at timestamp with time zone) IS 'What a schedule means: NOW, a DATE and its instant, or CRON and its expression, which a planner checks. Raises for anything else.';

CREATE FUNCTION pgtick.read_trace(traceparent text, tracestate text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
end $_$;

COMMENT ON FUNCTION pgtick.read_trace(traceparent text, tracestate text) IS 'The headers of W3C Trace Context that a job hands on; null without a valid traceparent, which is never an error.';

CREATE FUNCTION pgtick.rerun(job_id uuid, scheduled_at timestamp with time zone) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    job pgtick.jobs := pgtick.job_named(job_id);
    old_id text := pgtick.execution_id(scheduled_at, job_id);
    at timestamptz := clock_timestamp();
    made text;
begin
    if not exists (select from pgtick.finished_executions f where f.job_id = rerun.job_id and f.scheduled_at = rerun.scheduled_at) then
        raise exception 'execution_id: execution % is not over', old_id using errcode = 'object_not_in_prerequisite_state';
    end if;
    made := pgtick.start_anew(job, at, 'retry of ' || old_id);
    perform pgtick.audit('rerun', old_id, jsonb_build_object('execution_id', made));
    perform pgtick.tell_due(at);
    return made;
end $$;

COMMENT ON FUNCTION pgtick.rerun(job_id uuid, scheduled_at timestamp with time zone) IS 'Runs an execution that is over once more, with the parameters its job has now. It stays as it is; returns the id of the new one.';

CREATE FUNCTION pgtick.reschedule(job_id uuid, at timestamp with time zone) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.reschedule(job_id uuid, at timestamp with time zone) IS 'Moves a job that runs once, and has not started, to another time (now, when that is past). Returns the id of its execution.';

CREATE FUNCTION pgtick.resume_job(job_id uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.resume_job(job_id uuid) IS 'Lets a paused job go on from its next time after now. Returns whether it was paused.';

CREATE FUNCTION pgtick.resume_task(task_id text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.resume_task(task_id text) IS 'Lets a paused task go on: what waited starts now, as fast as slots and limits allow. Returns whether it was paused.';

CREATE FUNCTION pgtick.retire_jobs(before timestamp with time zone) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $_$
declare
    zero constant uuid := '00000000-0000-0000-0000-000000000000';
    day record;
    upto uuid;
    past text;
begin
    if before is null or before > now() - interval '1 day' then
        raise exception 'before: must be at least a day ago, not %', coalesce(before::text, 'null') using errcode = 'invalid_parameter_value';
    end if;
    -- One day at a time, the oldest, so that the parent is locked for a moment only.
    select p.* into day from pgtick.partitions p
    where p.parent = 'jobs' and p.partition <> 'jobs_standing' and p.until_at <= before
    order by p.from_at limit 1;
    if not found then
        return null;
    end if;
    upto := pgtick.uuid7_floor(day.until_at);
    past := pgtick.past_name(day.partition);
    lock table pgtick.jobs in access exclusive mode;
    perform from pg_inherits i where i.inhrelid = to_regclass(format('pgtick.%I', day.partition)) and i.inhparent = 'pgtick.jobs'::regclass;
    if not found then
        return null; -- another worker was first
    end if;
    execute format('alter table pgtick.jobs detach partition pgtick.%I', day.partition);
    execute format('alter table pgtick.%I rename to %I', day.partition, past);
    if to_regclass('pgtick.jobs_standing') is null then
        create table pgtick.jobs_standing (like pgtick.jobs including all);
    else
        alter table pgtick.jobs detach partition pgtick.jobs_standing;
    end if;
    -- What still stands, waits or runs goes on as before. Between its bounds, each of these is a short index scan.
    execute format($sql$
        with
        standing as (
            select s.job_id from pgtick.schedules s where s.job_id < $1 and s.job_id >= $2
            union select p.job_id from pgtick.pending_executions p where p.job_id < $1 and p.job_id >= $2
            union select r.job_id from pgtick.running_executions r where r.job_id < $1 and r.job_id >= $2
        ),
        moved as (
            delete from pgtick.%I j using standing where j.job_id = standing.job_id returning j.*
        )
        insert into pgtick.jobs_standing select * from moved
    $sql$, past) using upto, pgtick.uuid7_floor(day.from_at);
    execute format('alter table pgtick.jobs attach partition pgtick.jobs_standing for values from (%L) to (%L)', zero, upto);
    update pgtick.partition_windows w set from_at = least(greatest(w.from_at, day.until_at), w.until_at) where w.parent = 'jobs';
    insert into pgtick.archives (name, parent, from_at, until_at) values (past, 'jobs', day.from_at, day.until_at);
    return past;
end $_$;

COMMENT ON FUNCTION pgtick.retire_jobs(before timestamp with time zone) IS 'Takes the oldest day of jobs that ended before that time out of the table, and returns the name of the table it became; null when there is none. Jobs that still stand, wait or run move to jobs_standing.';

CREATE FUNCTION pgtick.retry_failed(task_id text DEFAULT NULL::text, user_id text DEFAULT NULL::text, error text DEFAULT NULL::text, since timestamp with time zone DEFAULT (now() - '1 day'::interval), until timestamp with time zone DEFAULT now(), max_count integer DEFAULT 1000) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.retry_failed(task_id text, user_id text, error text, since timestamp with time zone, until timestamp with time zone, max_count integer) IS 'Starts FAILED executions anew, those that were scheduled in [since, until) and match: task_id, user_id, a part of the error. The old ones stay FAILED; none is retried twice. Returns how many.';

CREATE FUNCTION pgtick.roll_up_stats(before timestamp with time zone DEFAULT (now() - '01:00:00'::interval)) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    first_at timestamptz;
    gone integer;
begin
    -- One at a time; the others leave it to that one.
    if not pg_try_advisory_xact_lock(7067850) then
        return 0;
    end if;
    select min(e.minute) into first_at from pgtick.execution_stats e where e.worker_id <> 0 and e.minute < before;
    if first_at is null then
        return 0;
    end if;
    -- Ten minutes of them a call: what it holds is short.
    with
    old as (
        delete from pgtick.execution_stats e
        where e.worker_id <> 0 and e.minute >= first_at and e.minute < least(before, first_at + interval '10 minutes')
        returning e.*
    ),
    summed as (
        insert into pgtick.execution_stats (minute, task_key, worker_id, started, completed, failed, retried, run_ms, lateness)
        select minute, task_key, 0, sum(started), sum(completed), sum(failed), sum(retried), sum(run_ms),
               array[coalesce(sum(lateness[1]), 0), coalesce(sum(lateness[2]), 0), coalesce(sum(lateness[3]), 0), coalesce(sum(lateness[4]), 0), coalesce(sum(lateness[5]), 0), coalesce(sum(lateness[6]), 0), coalesce(sum(lateness[7]), 0), coalesce(sum(lateness[8]), 0),
                     coalesce(sum(lateness[9]), 0), coalesce(sum(lateness[10]), 0), coalesce(sum(lateness[11]), 0), coalesce(sum(lateness[12]), 0), coalesce(sum(lateness[13]), 0), coalesce(sum(lateness[14]), 0), coalesce(sum(lateness[15]), 0)]
        from old
        group by minute, task_key
    )
    select count(*) into gone from old;
    return gone;
end $$;

COMMENT ON FUNCTION pgtick.roll_up_stats(before timestamp with time zone) IS 'Replaces the statistics of single workers before that time by their sums (worker_id 0), ten minutes a call; returns how many rows that were.';

CREATE FUNCTION pgtick.run_now(job_id uuid) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    job pgtick.jobs := pgtick.job_named(job_id);
    at timestamptz := clock_timestamp();
    made text := pgtick.start_anew(job, at, 'run_now');
begin
    perform pgtick.audit('run_now', made);
    perform pgtick.tell_due(at);
    return made;
end $$;

COMMENT ON FUNCTION pgtick.run_now(job_id uuid) IS 'Starts a job once more, now, besides its schedule (also while it is paused). Returns the id of the execution.';

CREATE FUNCTION pgtick.settle_waiting(job_ids uuid[] DEFAULT NULL::uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
#variable_conflict use_variable
declare
    jobs uuid[];
    held uuid[];
    held_at timestamptz[];
    unsettled uuid[];
    earliest timestamptz;
begin
    select array_agg(distinct p.job_id) into jobs
    from pgtick.pending_executions p
    where p.priority < 0 and (job_ids is null or p.job_id = any (job_ids));
    if jobs is null then
        return '{}';
    end if;
    -- From here on these runs end only after us, and their end is followed by another call.
    with
    free as materialized (
        select r.claim_id from pgtick.running_executions r where r.job_id = any (jobs) and r.overlap is not null for no key update skip locked
    ),
    marked as (
        update pgtick.running_executions r set awaited = true from free where r.claim_id = free.claim_id returning r.job_id, r.scheduled_at
    )
    select array_agg(m.job_id), array_agg(m.scheduled_at) into held, held_at from marked m;
    -- Runs that are ending or beginning right now: whoever called asks again.
    unsettled := array(select r.job_id from pgtick.running_executions r
                       where r.job_id = any (jobs) and r.overlap is not null and r.job_id <> all (coalesce(held, '{}')));
    jobs := array(select j.job_id from unnest(jobs) as j (job_id) where j.job_id <> all (unsettled));
    with
    waiting as materialized (
        select p.tableoid as part, p.ctid as tid, p.job_id, p.scheduled_at, p.overlap, p.attempt, p.losses, p.expires_at
        from pgtick.pending_executions p
        where p.priority < 0 and p.job_id = any (jobs)
        for update skip locked
    ),
    judged as (
        select w.part, w.tid,
               case
                   when w.expires_at <= clock_timestamp()
                       then 'it could not start in time: its deadline passed, or a newer occurrence came (expires_after_s, missed)'
                   when w.overlap = 'skip' and w.job_id = any (held)
                       then 'the run before it was not over (overlap: skip)'
                   when w.overlap = 'queue_one' and row_number() over (partition by w.job_id, w.overlap order by w.scheduled_at) > 1
                       then 'another one was waiting for the run before it to end already (overlap: queue_one)'
                   when w.overlap = 'cancel_running' and row_number() over (partition by w.job_id, w.overlap order by w.scheduled_at desc) > 1
                       then 'a newer one came before it could start (overlap: cancel_running)'
               end as reason
        from waiting w
        where w.attempt = 0 and w.losses = 0
    ),
    gone as (
        delete from pgtick.pending_executions p
        using judged j
        where p.tableoid = j.part and p.ctid = j.tid and j.reason is not null
        returning p.*, j.reason
    )
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, losses, origin, error)
    select g.job_id, pgtick.kept_at('finished_executions', g.scheduled_at), g.user_id, g.task_key, 'SKIPPED', 0, g.due_at, clock_timestamp(), g.losses, g.origin, g.reason
    from gone g
    on conflict do nothing;
    -- Older runs make way.
    perform pgtick.stop_execution(h.job_id, h.at)
    from unnest(held, held_at) as h (job_id, at)
    where exists (select from pgtick.pending_executions p
                  where p.job_id = h.job_id and p.priority < 0 and p.overlap = 'cancel_running' and p.attempt = 0 and p.scheduled_at > h.at);
    -- Where nothing runs, the oldest may, and is not left out any more; while the others wait, only what the user said is
    -- a deadline.
    with
    waiting as materialized (
        select p.tableoid as part, p.ctid as tid, p.job_id, p.scheduled_at, p.due_at, p.expires_at
        from pgtick.pending_executions p
        where p.priority < 0 and p.job_id = any (jobs)
        for update skip locked
    ),
    turned as (
        -- One that somebody made nonsense of by hand is none: raising here would keep all other jobs waiting, too.
        select w.part, w.tid,
               w.due_at + jsonb_path_query_first(j.policies, '$.expires_after_s ? (@ >= 1 && @ <= 316224000)')::float8 * interval '1 second'
                   as expires_at,
               w.job_id <> all (coalesce(held, '{}'))
                   and row_number() over (partition by w.job_id order by w.due_at, w.scheduled_at) = 1 as its_turn,
               w.expires_at as expired_at
        from waiting w
        left join pgtick.jobs j on j.job_id = w.job_id
    ),
    freed as (
        update pgtick.pending_executions p
        set priority = case when t.its_turn then -p.priority else p.priority end, expires_at = t.expires_at,
            overlap = case when t.its_turn then 'wait' else p.overlap end
        from turned t
        where p.tableoid = t.part and p.ctid = t.tid and (t.its_turn or t.expired_at is distinct from t.expires_at)
        returning p.due_at, t.its_turn
    )
    select min(f.due_at) into earliest from freed f where f.its_turn;
    if earliest is not null then
        perform pgtick.tell_due(earliest);
    end if;
    return unsettled;
end $_$;

COMMENT ON FUNCTION pgtick.settle_waiting(job_ids uuid[]) IS 'Decides about executions that wait for a run of their job to end: which go on waiting, which start, which are left out. Returns jobs that are in the middle of a change: ask again.';

CREATE FUNCTION pgtick.skip_run(job_id uuid, at timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.skip_run(job_id uuid, at timestamp with time zone) IS 'Leaves out one coming occurrence of a recurring job, the next by default; it is SKIPPED. Returns the id of the execution.';

CREATE FUNCTION pgtick.start_anew(job pgtick.jobs, at timestamp with time zone, origin text, due timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.start_anew(job pgtick.jobs, at timestamp with time zone, origin text, due timestamp with time zone) IS 'Makes one more execution of a job pending, with a note where it came from; returns its id.';

CREATE FUNCTION pgtick.stop_execution(job_id uuid, scheduled_at timestamp with time zone) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
    claim bigint;
    final text;
begin
    for turn in 1..3 loop
        if pgtick.cancel_pending(job_id, scheduled_at, scheduled_at) > 0 then
            return 'CANCELLED';
        end if;
        update pgtick.running_executions r set cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())
        where r.job_id = stop_execution.job_id and r.scheduled_at = stop_execution.scheduled_at
        returning r.claim_id into claim;
        if claim is not null then
            perform pgtick.tell('pgtick_cancel', claim::text);
            return 'IN_PROGRESS';
        end if;
        select f.status into final from pgtick.finished_executions f
        where f.job_id = stop_execution.job_id and f.scheduled_at = stop_execution.scheduled_at;
        if final is not null then
            return final;
        end if;
    end loop;
    return null;
end $$;

COMMENT ON FUNCTION pgtick.stop_execution(job_id uuid, scheduled_at timestamp with time zone) IS 'What pgtick.cancel_execution does, without an audit entry: for programs, which do it for a reason that is on record.';

CREATE FUNCTION pgtick.sweep_standing(past text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    swept bigint := 0;
begin
    perform from pgtick.archives a where a.name = past and a.parent = 'jobs' and a.written_at is null and a.dropped_at is null;
    if not found then
        raise exception 'past: % is no day of jobs that waits to be archived', past using errcode = 'invalid_parameter_value';
    end if;
    if to_regclass('pgtick.jobs_standing') is not null then
        execute format($sql$
            with gone as (
                delete from pgtick.jobs_standing j
                where not exists (select from pgtick.schedules s where s.job_id = j.job_id)
                  and not exists (select from pgtick.pending_executions p where p.job_id = j.job_id)
                  and not exists (select from pgtick.running_executions r where r.job_id = j.job_id)
                  and coalesce(j.updated_at, j.cancelled_at, j.created_at) < now() - interval '1 day'
                returning j.*
            )
            insert into pgtick.%I select * from gone
        $sql$, past);
        get diagnostics swept = row_count;
    end if;
    return swept;
end $_$;

COMMENT ON FUNCTION pgtick.sweep_standing(past text) IS 'Moves jobs of jobs_standing that no longer stand into a detached day of jobs, to leave with it. Returns how many.';

CREATE FUNCTION pgtick.take_back(job_id uuid, since timestamp with time zone DEFAULT clock_timestamp(), scheduled_since timestamp with time zone DEFAULT '-infinity'::timestamp with time zone, OUT taken integer, OUT first_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION pgtick.take_back(job_id uuid, since timestamp with time zone, scheduled_since timestamp with time zone, OUT taken integer, OUT first_at timestamp with time zone) IS 'Deletes what is pending, is due after since and was scheduled for after scheduled_since: not what was started by hand. For use under lock_job.';

CREATE TABLE pgtick.tasks (
    task_id text NOT NULL,
    task_key integer NOT NULL,
    kind text DEFAULT 'python'::text NOT NULL,
    target text NOT NULL,
    pool text DEFAULT 'async'::text NOT NULL,
    description text,
    queue text DEFAULT 'default'::text NOT NULL,
    priority smallint DEFAULT 2 NOT NULL,
    max_retries smallint DEFAULT 3 NOT NULL,
    backoff_base_s double precision DEFAULT 5 NOT NULL,
    backoff_factor double precision DEFAULT 5 NOT NULL,
    backoff_cap_s double precision DEFAULT 86400 NOT NULL,
    backoff_jitter double precision DEFAULT 0 NOT NULL,
    timeout_s double precision,
    max_concurrent integer,
    concurrency_key text,
    max_per_key integer,
    rate_per_s double precision,
    parameters_schema jsonb,
    options jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    paused_at timestamp with time zone,
    paused_note text,
    CONSTRAINT tasks_backoff_is_sane CHECK (((backoff_base_s >= (0)::double precision) AND (backoff_factor >= (1)::double precision) AND ((backoff_cap_s >= (0)::double precision) AND (backoff_cap_s <= (86400)::double precision)) AND ((backoff_jitter >= (0)::double precision) AND (backoff_jitter <= (1)::double precision)))),
    CONSTRAINT tasks_key_goes_with_its_limit CHECK (((concurrency_key IS NULL) = (max_per_key IS NULL))),
    CONSTRAINT tasks_kind_is_known CHECK ((kind = ANY (ARRAY['python'::text, 'http'::text]))),
    CONSTRAINT tasks_limits_are_positive CHECK (((max_concurrent > 0) AND (max_per_key > 0) AND (rate_per_s > (0)::double precision))),
    CONSTRAINT tasks_max_retries_is_sane CHECK (((max_retries >= 0) AND (max_retries <= 1000))),
    CONSTRAINT tasks_options_is_an_object CHECK ((jsonb_typeof(options) = 'object'::text)),
    CONSTRAINT tasks_pool_is_known CHECK ((pool = ANY (ARRAY['async'::text, 'thread'::text, 'process'::text]))),
    CONSTRAINT tasks_priority_tells_of_limits CHECK (((priority >=
CASE
    WHEN ((max_concurrent IS NOT NULL) OR (max_per_key IS NOT NULL) OR (rate_per_s IS NOT NULL)) THEN 5
    ELSE 1
END) AND (priority <=
CASE
    WHEN ((max_concurrent IS NOT NULL) OR (max_per_key IS NOT NULL) OR (rate_per_s IS NOT NULL) OR (paused_at IS NOT NULL)) THEN 8
    ELSE 4
END))),
    CONSTRAINT tasks_task_id_is_a_name CHECK ((task_id ~ '^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$'::text)),
    CONSTRAINT tasks_timeout_is_positive CHECK ((timeout_s > (0)::double precision))
);

CREATE FUNCTION pgtick.task_named(task_id text) RETURNS pgtick.tasks
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    task pgtick.tasks;
begin
    select * into task from pgtick.tasks t where t.task_id = task_named.task_id;
    if not found then
        raise exception 'task_id: no task "%" is registered', task_id using errcode = 'invalid_parameter_value';
    end if;
    return task;
end $$;

COMMENT ON FUNCTION pgtick.task_named(task_id text) IS 'The task of that name; raises when there is none.';

CREATE FUNCTION pgtick.tell(channel text, said text) RETURNS boolean
    LANGUAGE sql
    RETURN CASE WHEN (pg_notification_queue_usage() < (0.9)::double precision) THEN (pg_notify(channel, said) IS NOT NULL) ELSE false END;

COMMENT ON FUNCTION pgtick.tell(channel text, said text) IS 'NOTIFY, unless the queue of notifications is nearly full; returns whether it did.';

CREATE FUNCTION pgtick.tell_due(at timestamp with time zone) RETURNS boolean
    LANGUAGE sql
    RETURN pgtick.tell('pgtick_due'::text, (((EXTRACT(epoch FROM at) * (1000000)::numeric))::bigint)::text);

COMMENT ON FUNCTION pgtick.tell_due(at timestamp with time zone) IS 'Tells workers that something is due at that time; returns whether it did.';

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

CREATE TABLE pgtick.archives (
    name text NOT NULL,
    parent text NOT NULL,
    from_at timestamp with time zone NOT NULL,
    until_at timestamp with time zone NOT NULL,
    claimed_by text,
    claimed_until timestamp with time zone,
    rows bigint,
    bytes bigint,
    sha256 text,
    location text,
    detached_at timestamp with time zone DEFAULT now() NOT NULL,
    written_at timestamp with time zone,
    dropped_at timestamp with time zone
);

CREATE TABLE pgtick.audit_log (
    entry_id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    db_user text DEFAULT SESSION_USER NOT NULL,
    user_id text,
    details jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE pgtick.audit_log ALTER COLUMN entry_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgtick.audit_log_entry_id_seq
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
    revoked_at timestamp with time zone,
    awaited boolean DEFAULT false NOT NULL,
    limit_key text,
    progress jsonb,
    errors jsonb,
    CONSTRAINT running_executions_attempt_is_sane CHECK ((((attempt >= 1) AND (attempt <= 32001)) AND ((losses >= 0) AND (losses <= 32000))))
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
    skips timestamp with time zone[],
    cancelled_at timestamp with time zone,
    problem text,
    CONSTRAINT schedules_anchor_at_is_sane CHECK (((anchor_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (anchor_at < '2200-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedules_next_run_at_is_sane CHECK (((next_run_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (next_run_at < '2200-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedules_planned_through_is_sane CHECK (((planned_through >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (planned_through < '2200-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedules_policies_is_an_object CHECK ((jsonb_typeof(policies) = 'object'::text)),
    CONSTRAINT schedules_priority_is_1_to_8 CHECK (((priority >= 1) AND (priority <= 8))),
    CONSTRAINT schedules_runs_is_sane CHECK (((runs >= 0) AND (runs <= '1000000000000000'::bigint))),
    CONSTRAINT schedules_skips_are_sane CHECK ((('2000-01-01 00:00:00+00'::timestamp with time zone <= ALL (skips)) AND ('2200-01-01 00:00:00+00'::timestamp with time zone > ALL (skips))))
)
WITH (fillfactor='80');

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
                CASE
                    WHEN (schedules.cancelled_at IS NULL) THEN 'PENDING'::text
                    ELSE 'CANCELLED'::text
                END AS "case",
            (0)::smallint AS int2,
            schedules.next_run_at,
            NULL::timestamp with time zone,
            schedules.cancelled_at,
            NULL::bigint,
            (0)::smallint AS int2,
            schedules.problem,
            NULL::jsonb,
            NULL::jsonb,
            NULL::text,
            NULL::integer
           FROM pgtick.schedules
          WHERE ((schedules.next_run_at IS NOT NULL) AND ((schedules.expression IS NULL) OR ((schedules.paused_at IS NULL) AND (schedules.problem IS NULL))) AND ((schedules.skips IS NULL) OR (schedules.next_run_at <> ALL (schedules.skips))))
        UNION ALL
         SELECT s.job_id,
            skip.at,
            s.user_id,
            s.task_key,
            'SKIPPED'::text,
            (0)::smallint AS int2,
            skip.at,
            NULL::timestamp with time zone,
            NULL::timestamp with time zone,
            NULL::bigint,
            (0)::smallint AS int2,
            'skipped by hand'::text,
            NULL::jsonb,
            NULL::jsonb,
            NULL::text,
            1
           FROM (pgtick.schedules s
             CROSS JOIN LATERAL unnest(s.skips) skip(at))
          WHERE ((s.skips IS NOT NULL) AND (NOT (EXISTS ( SELECT
                   FROM pgtick.finished_executions f
                  WHERE ((f.job_id = s.job_id) AND (f.scheduled_at = skip.at))))))) e
     LEFT JOIN pgtick.tasks t USING (task_key));

COMMENT ON VIEW pgtick.executions IS 'Every execution in every state: PENDING, IN_PROGRESS, RETRYING, COMPLETED, FAILED, CANCELLED, SKIPPED.';

CREATE VIEW pgtick.failing AS
 SELECT t.task_id,
    s.started,
    s.failed,
    s.retried,
    round(((s.failed)::numeric / (NULLIF((s.failed + s.completed), 0))::numeric), 4) AS failed_share,
    last.finished_at AS last_failed_at,
    COALESCE(last.error, retrying.error) AS last_error,
    pgtick.execution_id(COALESCE(last.scheduled_at, retrying.scheduled_at), COALESCE(last.job_id, retrying.job_id)) AS last_execution_id
   FROM (((( SELECT execution_stats.task_key,
            sum(execution_stats.started) AS started,
            sum(execution_stats.completed) AS completed,
            sum(execution_stats.failed) AS failed,
            sum(execution_stats.retried) AS retried
           FROM pgtick.execution_stats
          WHERE (execution_stats.minute > (now() - '01:00:00'::interval))
          GROUP BY execution_stats.task_key
         HAVING ((sum(execution_stats.failed) + sum(execution_stats.retried)) > 0)) s
     LEFT JOIN pgtick.tasks t USING (task_key))
     LEFT JOIN LATERAL ( SELECT f.finished_at,
            f.error,
            f.scheduled_at,
            f.job_id
           FROM pgtick.finished_executions f
          WHERE ((f.status = 'FAILED'::text) AND (f.task_key = s.task_key) AND (f.scheduled_at > (now() - '1 day'::interval)) AND (f.scheduled_at < (now() + '01:00:00'::interval)))
          ORDER BY f.scheduled_at DESC
         LIMIT 1) last ON (true))
     LEFT JOIN LATERAL ( SELECT ((e.errors -> '-1'::integer) ->> 'error'::text) AS error,
            e.scheduled_at,
            e.job_id
           FROM pgtick.pending_executions e
          WHERE ((last.job_id IS NULL) AND (e.task_key = s.task_key) AND (e.attempt > 0) AND (e.due_at > (now() - '01:00:00'::interval)) AND (e.due_at < (now() + '01:00:00'::interval)))
         LIMIT 1) retrying ON (true));

COMMENT ON VIEW pgtick.failing IS 'Tasks with failed attempts in the last hour, with the newest final failure of the last day, or else one that is being retried.';

COMMENT ON COLUMN pgtick.failing.failed IS 'Executions that failed for good.';

COMMENT ON COLUMN pgtick.failing.retried IS 'Attempts that failed and are tried again.';

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

CREATE VIEW pgtick.late AS
 SELECT p.job_id,
    p.scheduled_at,
    t.task_id,
    p.user_id,
    p.due_at,
    (now() - p.due_at) AS late_by,
    p.attempt,
    p.priority,
    t.queue,
    p.suspect,
    pgtick.execution_id(p.scheduled_at, p.job_id) AS execution_id
   FROM (pgtick.pending_executions p
     LEFT JOIN pgtick.tasks t USING (task_key))
  WHERE ((p.due_at < (now() - '00:00:02'::interval)) AND ((p.priority >= 1) AND (p.priority <= 4)));

COMMENT ON VIEW pgtick.late IS 'Due more than 2 s ago and not started, although neither a limit of its task nor a run of its own job holds it back. Why? select pgtick.explain(execution_id).';

CREATE VIEW pgtick.lateness AS
 SELECT minute,
    started,
    pgtick.lateness_quantile(buckets, (0.5)::double precision) AS p50_ms,
    pgtick.lateness_quantile(buckets, (0.95)::double precision) AS p95_ms,
    pgtick.lateness_quantile(buckets, (0.99)::double precision) AS p99_ms,
    (( SELECT COALESCE(sum(bucket.n), (0)::numeric) AS "coalesce"
           FROM unnest(minutes.buckets) WITH ORDINALITY bucket(n, i)
          WHERE (bucket.i > array_position(pgtick.lateness_bounds(), 2000))))::bigint AS later_than_2s
   FROM ( SELECT execution_stats.minute,
            sum(execution_stats.started) AS started,
            ARRAY[sum(execution_stats.lateness[1]), sum(execution_stats.lateness[2]), sum(execution_stats.lateness[3]), sum(execution_stats.lateness[4]), sum(execution_stats.lateness[5]), sum(execution_stats.lateness[6]), sum(execution_stats.lateness[7]), sum(execution_stats.lateness[8]), sum(execution_stats.lateness[9]), sum(execution_stats.lateness[10]), sum(execution_stats.lateness[11]), sum(execution_stats.lateness[12]), sum(execution_stats.lateness[13]), sum(execution_stats.lateness[14]), sum(execution_stats.lateness[15])] AS buckets
           FROM pgtick.execution_stats
          WHERE (execution_stats.minute > (now() - '1 day'::interval))
          GROUP BY execution_stats.minute) minutes;

COMMENT ON VIEW pgtick.lateness IS 'How late executions started, by minute of the last day, from the stored histograms (some seconds behind).';

COMMENT ON COLUMN pgtick.lateness.p99_ms IS 'Milliseconds between due_at and the start that 99 % of the starts did not exceed; interpolated within a bucket.';

ALTER TABLE pgtick.operations ALTER COLUMN operation_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pgtick.operations_operation_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pgtick.partition_windows (
    parent text NOT NULL,
    from_at timestamp with time zone NOT NULL,
    until_at timestamp with time zone NOT NULL,
    step interval NOT NULL,
    CONSTRAINT partition_windows_is_a_span CHECK ((from_at <= until_at)),
    CONSTRAINT partition_windows_step_is_positive CHECK ((step > '00:00:00'::interval))
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
    pools jsonb DEFAULT '{}'::jsonb NOT NULL,
    blocked_since timestamp with time zone,
    task_keys integer[] DEFAULT '{}'::integer[] NOT NULL,
    queues text[],
    version text NOT NULL,
    CONSTRAINT workers_state_is_known CHECK ((state = ANY (ARRAY['RUNNING'::text, 'DRAINING'::text, 'STOPPED'::text, 'LOST'::text])))
);

CREATE VIEW pgtick.overview AS
 SELECT now() AS at,
    due.waiting,
    due.late,
    due.oldest_late,
    held.running,
    recent.starts_per_s,
    hour.completed AS completed_1h,
    hour.failed AS failed_1h,
    hour.retried AS retried_1h,
    recent.p50_ms,
    recent.p99_ms,
    alive.workers,
    alive.capacity,
    standing.recurring,
    standing.paused,
    standing.broken,
    window_end.until_at AS partitions_until,
    ( SELECT count(*) AS count
           FROM pgtick.findings) AS findings,
    ( SELECT count(*) AS count
           FROM pgtick.tasks
          WHERE (tasks.paused_at IS NOT NULL)) AS paused_tasks
   FROM ((((((( SELECT count(*) AS waiting,
            count(*) FILTER (WHERE ((pending_executions.due_at < (now() - '00:00:02'::interval)) AND ((pending_executions.priority >= 1) AND (pending_executions.priority <= 4)))) AS late,
            (now() - min(pending_executions.due_at) FILTER (WHERE ((pending_executions.due_at < (now() - '00:00:02'::interval)) AND ((pending_executions.priority >= 1) AND (pending_executions.priority <= 4))))) AS oldest_late
           FROM pgtick.pending_executions
          WHERE (pending_executions.due_at <= now())) due
     CROSS JOIN ( SELECT count(*) AS running
           FROM pgtick.running_executions
          WHERE (running_executions.due_at <= now())) held)
     CROSS JOIN ( SELECT COALESCE(sum(execution_stats.completed), (0)::bigint) AS completed,
            COALESCE(sum(execution_stats.failed), (0)::bigint) AS failed,
            COALESCE(sum(execution_stats.retried), (0)::bigint) AS retried
           FROM pgtick.execution_stats
          WHERE (execution_stats.minute > (now() - '01:00:00'::interval))) hour)
     CROSS JOIN ( SELECT round(((( SELECT COALESCE(sum(execution_stats.started), (0)::bigint) AS "coalesce"
                   FROM pgtick.execution_stats
                  WHERE (execution_stats.minute = (date_trunc('minute'::text, now()) - '00:01:00'::interval))))::numeric / 60.0), 2) AS starts_per_s,
            pgtick.lateness_quantile(array_agg(buckets.n ORDER BY buckets.i), (0.5)::double precision) AS p50_ms,
            pgtick.lateness_quantile(array_agg(buckets.n ORDER BY buckets.i), (0.99)::double precision) AS p99_ms
           FROM ( SELECT bucket.i,
                    sum(bucket.n) AS n
                   FROM (pgtick.execution_stats e
                     CROSS JOIN LATERAL unnest(e.lateness) WITH ORDINALITY bucket(n, i))
                  WHERE (e.minute > (now() - '00:05:00'::interval))
                  GROUP BY bucket.i) buckets) recent)
     CROSS JOIN ( SELECT count(*) AS workers,
            COALESCE(sum(workers.capacity), (0)::bigint) AS capacity
           FROM pgtick.workers
          WHERE ((workers.state = 'RUNNING'::text) AND pgtick.is_live(workers.last_seen_at))) alive)
     CROSS JOIN ( SELECT count(*) FILTER (WHERE ((schedules.expression IS NOT NULL) AND (schedules.paused_at IS NULL) AND (schedules.problem IS NULL))) AS recurring,
            count(*) FILTER (WHERE ((schedules.paused_at IS NOT NULL) AND (schedules.cancelled_at IS NULL))) AS paused,
            count(*) FILTER (WHERE (schedules.problem IS NOT NULL)) AS broken
           FROM pgtick.schedules) standing)
     CROSS JOIN ( SELECT min(partition_windows.until_at) AS until_at
           FROM pgtick.partition_windows) window_end);

COMMENT ON VIEW pgtick.overview IS 'One row that tells whether all is well; best read with \x.';

COMMENT ON COLUMN pgtick.overview.waiting IS 'Executions that are due and not started.';

COMMENT ON COLUMN pgtick.overview.late IS 'Those of them that have been due for more than 2 s, and that neither a limit of their task nor a run of their own job holds back.';

COMMENT ON COLUMN pgtick.overview.starts_per_s IS 'In the last full minute, as far as workers have stored it.';

COMMENT ON COLUMN pgtick.overview.p99_ms IS 'Lateness of starts in the last five minutes, ms.';

COMMENT ON COLUMN pgtick.overview.paused IS 'Jobs that are paused.';

COMMENT ON COLUMN pgtick.overview.partitions_until IS 'No partitions have been made beyond this time; the janitor keeps it PGTICK_RUNWAY_HOURS ahead.';

COMMENT ON COLUMN pgtick.overview.findings IS 'Rows in pgtick.findings: sentences on what to act on.';

COMMENT ON COLUMN pgtick.overview.paused_tasks IS 'Tasks that are paused: what is due of them waits, and is not late.';

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

CREATE VIEW pgtick.queue_status AS
 SELECT t.queue,
    count(*) AS tasks,
    (COALESCE(sum(waiting.depth), (0)::numeric))::bigint AS depth,
    (COALESCE(sum(waiting.late), (0)::numeric))::bigint AS late,
    min(waiting.oldest) AS oldest_due_at,
    (now() - min(waiting.oldest)) AS oldest_age,
    (COALESCE(sum(held.running), (0)::numeric))::bigint AS running,
    round((COALESCE(sum(rate.started), (0)::numeric) / 60.0), 2) AS starts_per_s,
    ( SELECT count(*) AS count
           FROM pgtick.workers w
          WHERE ((w.state = 'RUNNING'::text) AND pgtick.is_live(w.last_seen_at) AND (w.task_keys && array_agg(t.task_key)))) AS workers
   FROM (((pgtick.tasks t
     LEFT JOIN ( SELECT pending_executions.task_key,
            count(*) AS depth,
            count(*) FILTER (WHERE ((pending_executions.due_at < (now() - '00:00:02'::interval)) AND ((pending_executions.priority >= 1) AND (pending_executions.priority <= 4)))) AS late,
            min(pending_executions.due_at) AS oldest
           FROM pgtick.pending_executions
          WHERE (pending_executions.due_at <= now())
          GROUP BY pending_executions.task_key) waiting USING (task_key))
     LEFT JOIN ( SELECT running_executions.task_key,
            count(*) AS running
           FROM pgtick.running_executions
          GROUP BY running_executions.task_key) held USING (task_key))
     LEFT JOIN ( SELECT execution_stats.task_key,
            sum(execution_stats.started) AS started
           FROM pgtick.execution_stats
          WHERE (execution_stats.minute = (date_trunc('minute'::text, now()) - '00:01:00'::interval))
          GROUP BY execution_stats.task_key) rate USING (task_key))
  GROUP BY t.queue;

COMMENT ON VIEW pgtick.queue_status IS 'Each queue: what waits, how long the oldest has, how fast it goes, and how many workers serve it.';

COMMENT ON COLUMN pgtick.queue_status.depth IS 'Executions that are due and not started.';

COMMENT ON COLUMN pgtick.queue_status.starts_per_s IS 'In the last full minute, as far as workers have stored it.';

COMMENT ON COLUMN pgtick.queue_status.workers IS 'Live workers that know a task of the queue and serve it.';

CREATE VIEW pgtick.running AS
 SELECT r.job_id,
    r.scheduled_at,
    t.task_id,
    r.user_id,
    r.attempt,
    w.name AS worker,
    r.worker_id,
        CASE
            WHEN (r.due_at > now()) THEN 'waits for its time'::text
            WHEN (r.cancel_requested_at IS NOT NULL) THEN 'asked to stop'::text
            ELSE 'runs'::text
        END AS doing,
    (now() - GREATEST(r.due_at, r.claimed_at)) AS running_for,
    (r.lease_expires_at - now()) AS lease_left,
    r.progress,
    r.losses,
    pgtick.execution_id(r.scheduled_at, r.job_id) AS execution_id,
    r.claim_id
   FROM ((pgtick.running_executions r
     LEFT JOIN pgtick.tasks t USING (task_key))
     LEFT JOIN pgtick.workers w USING (worker_id));

COMMENT ON VIEW pgtick.running IS 'What workers hold right now: running, or claimed a little ahead of its time.';

COMMENT ON COLUMN pgtick.running.running_for IS 'Since it was due and claimed; negative: claimed ahead, starts in so long.';

COMMENT ON COLUMN pgtick.running.lease_left IS 'Workers renew every few seconds; negative: its worker is silent, and the janitor takes the execution back.';

CREATE VIEW pgtick.schedule_status AS
 SELECT s.job_id,
    t.task_id,
    s.user_id,
    COALESCE(s.expression, 'once'::text) AS schedule,
    s.timezone,
        CASE
            WHEN (s.cancelled_at IS NOT NULL) THEN 'CANCELLED'::text
            WHEN (s.problem IS NOT NULL) THEN 'BROKEN'::text
            WHEN (s.paused_at IS NOT NULL) THEN 'PAUSED'::text
            WHEN (s.next_run_at IS NULL) THEN 'ENDED'::text
            ELSE 'ACTIVE'::text
        END AS state,
    s.next_run_at,
    (s.next_run_at - now()) AS starts_in,
    (s.next_run_at AT TIME ZONE s.timezone) AS next_run_local,
    s.runs,
    COALESCE(s.problem, s.paused_note) AS note,
    s.planned_through
   FROM (pgtick.schedules s
     LEFT JOIN pgtick.tasks t USING (task_key));

COMMENT ON VIEW pgtick.schedule_status IS 'Recurring jobs and dates far ahead, with their next time.';

COMMENT ON COLUMN pgtick.schedule_status.next_run_at IS 'The next occurrence that is not pending yet: those of the coming minute or so already are.';

COMMENT ON COLUMN pgtick.schedule_status.note IS 'Why it is BROKEN, or the note it was paused with.';

CREATE VIEW pgtick.slo AS
 SELECT date_trunc('hour'::text, e.minute) AS hour,
    t.task_id,
    (sum(counts.started))::bigint AS started,
    (sum(counts.within))::bigint AS within_2s,
    round((sum(counts.within) / NULLIF(sum(counts.started), (0)::numeric)), 6) AS share
   FROM ((pgtick.execution_stats e
     LEFT JOIN pgtick.tasks t USING (task_key))
     CROSS JOIN LATERAL ( SELECT sum(bucket.n) AS started,
            COALESCE(sum(bucket.n) FILTER (WHERE (bucket.i <= array_position(pgtick.lateness_bounds(), 2000))), (0)::bigint) AS within
           FROM unnest(e.lateness) WITH ORDINALITY bucket(n, i)) counts)
  WHERE (e.minute > (now() - '7 days'::interval))
  GROUP BY (date_trunc('hour'::text, e.minute)), t.task_id;

COMMENT ON VIEW pgtick.slo IS 'Which share of starts came within 2 s of their time, by hour and task, for the last 7 days.';

COMMENT ON COLUMN pgtick.slo.share IS 'within_2s / started, 1 is all of them.';

CREATE VIEW pgtick.stuck AS
 SELECT 'no worker'::text AS kind,
    t.task_id,
    count(*) AS executions,
    min(p.due_at) AS since,
    (array_agg(p.job_id ORDER BY p.due_at))[1] AS job_id,
    format('no live worker knows task %s: start one whose PGTICK_TASKS and PGTICK_QUEUES include it'::text, COALESCE(t.task_id, ('#'::text || p.task_key))) AS sentence
   FROM (pgtick.pending_executions p
     LEFT JOIN pgtick.tasks t USING (task_key))
  WHERE ((p.due_at < (now() - '00:00:02'::interval)) AND (NOT (EXISTS ( SELECT
           FROM pgtick.workers w
          WHERE ((w.state = 'RUNNING'::text) AND pgtick.is_live(w.last_seen_at) AND (p.task_key = ANY (w.task_keys)))))))
  GROUP BY p.task_key, t.task_id
UNION ALL
 SELECT 'lost lease'::text AS kind,
    t.task_id,
    count(*) AS executions,
    min(r.lease_expires_at) AS since,
    (array_agg(r.job_id ORDER BY r.lease_expires_at))[1] AS job_id,
    'the leases are over and nobody took the executions back: no janitor comes round; look at the workers'::text AS sentence
   FROM (pgtick.running_executions r
     LEFT JOIN pgtick.tasks t USING (task_key))
  WHERE (r.lease_expires_at < (now() - '00:01:00'::interval))
  GROUP BY t.task_id
UNION ALL
 SELECT 'blocked worker'::text AS kind,
    NULL::text AS task_id,
    w.running AS executions,
    w.blocked_since AS since,
    NULL::uuid AS job_id,
    (('a task blocks the event loop of worker '::text || w.name) || ': select * from pgtick.findings says what runs there'::text) AS sentence
   FROM pgtick.workers w
  WHERE ((w.state = ANY (ARRAY['RUNNING'::text, 'DRAINING'::text])) AND pgtick.is_live(w.last_seen_at) AND (w.blocked_since IS NOT NULL))
UNION ALL
 SELECT 'broken schedule'::text AS kind,
    t.task_id,
    1 AS executions,
    s.next_run_at AS since,
    s.job_id,
    s.problem AS sentence
   FROM (pgtick.schedules s
     LEFT JOIN pgtick.tasks t USING (task_key))
  WHERE (s.problem IS NOT NULL)
UNION ALL
 SELECT 'not planned'::text AS kind,
    t.task_id,
    count(*) AS executions,
    min(s.next_run_at) AS since,
    (array_agg(s.job_id ORDER BY s.next_run_at))[1] AS job_id,
    'the next occurrence is past and was not made pending: no planner comes round; look at the workers'::text AS sentence
   FROM (pgtick.schedules s
     LEFT JOIN pgtick.tasks t USING (task_key))
  WHERE ((s.next_run_at < (now() - '00:01:00'::interval)) AND (s.paused_at IS NULL) AND (s.cancelled_at IS NULL) AND (s.problem IS NULL))
  GROUP BY t.task_id;

COMMENT ON VIEW pgtick.stuck IS 'What will not go on by itself, and what to do about it. Empty when all is well.';

COMMENT ON COLUMN pgtick.stuck.since IS 'Since when the oldest of them has been waiting.';

COMMENT ON COLUMN pgtick.stuck.job_id IS 'The one that has been waiting longest, as an example.';

CREATE TABLE pgtick.task_secrets (
    task_id text NOT NULL,
    secret text NOT NULL,
    headers jsonb DEFAULT '{}'::jsonb NOT NULL
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

CREATE VIEW pgtick.worker_status AS
 SELECT worker_id,
    name,
        CASE
            WHEN ((state = ANY (ARRAY['RUNNING'::text, 'DRAINING'::text])) AND (NOT pgtick.is_live(last_seen_at))) THEN 'SILENT'::text
            WHEN ((state = ANY (ARRAY['RUNNING'::text, 'DRAINING'::text])) AND (blocked_since IS NOT NULL)) THEN 'BLOCKED'::text
            ELSE state
        END AS state,
    (now() - last_seen_at) AS seen_ago,
    running,
    capacity,
    (now() - started_at) AS up_for,
    drain_requested_at,
    ARRAY( SELECT t.task_id
           FROM pgtick.tasks t
          WHERE (t.task_key = ANY (w.task_keys))
          ORDER BY t.task_id) AS tasks,
    queues,
    version
   FROM pgtick.workers w
  WHERE ((state = ANY (ARRAY['RUNNING'::text, 'DRAINING'::text])) OR (last_seen_at > (now() - '1 day'::interval)));

COMMENT ON VIEW pgtick.worker_status IS 'Worker processes that live, and those that ended within a day.';

COMMENT ON COLUMN pgtick.worker_status.state IS 'RUNNING, DRAINING, STOPPED, LOST, SILENT: should be alive, and was not heard of for a minute, or BLOCKED: a task keeps its event loop from coming round.';

COMMENT ON COLUMN pgtick.worker_status.queues IS 'The queues it was limited to; null: all.';

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

ALTER TABLE ONLY pgtick.archives
    ADD CONSTRAINT archives_pkey PRIMARY KEY (name);

ALTER TABLE ONLY pgtick.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (entry_id);

ALTER TABLE ONLY pgtick.findings
    ADD CONSTRAINT findings_pkey PRIMARY KEY (kind, subject);

ALTER TABLE ONLY pgtick.finished_executions
    ADD CONSTRAINT finished_executions_pkey PRIMARY KEY (job_id, scheduled_at);

ALTER TABLE ONLY pgtick.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (user_id, key);

ALTER TABLE ONLY pgtick.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY pgtick.operations
    ADD CONSTRAINT operations_pkey PRIMARY KEY (operation_id);

ALTER TABLE ONLY pgtick.partition_windows
    ADD CONSTRAINT partition_windows_pkey PRIMARY KEY (parent);

ALTER TABLE ONLY pgtick.running_executions
    ADD CONSTRAINT running_executions_pkey PRIMARY KEY (claim_id);

ALTER TABLE ONLY pgtick.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY pgtick.task_secrets
    ADD CONSTRAINT task_secrets_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY pgtick.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY pgtick.tasks
    ADD CONSTRAINT tasks_task_key_key UNIQUE (task_key);

ALTER TABLE ONLY pgtick.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (user_id);

ALTER TABLE ONLY pgtick.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (worker_id);

CREATE INDEX archives_not_dropped ON pgtick.archives USING btree (name) WHERE (dropped_at IS NULL);

CREATE INDEX audit_log_by_subject ON pgtick.audit_log USING btree (subject, entry_id);

CREATE INDEX execution_stats_by_minute ON ONLY pgtick.execution_stats USING btree (minute, task_key);

CREATE INDEX execution_stats_not_rolled_up ON ONLY pgtick.execution_stats USING btree (minute) WHERE (worker_id <> 0);

CREATE INDEX finished_executions_by_user ON ONLY pgtick.finished_executions USING btree (user_id, scheduled_at);

CREATE INDEX finished_executions_not_completed ON ONLY pgtick.finished_executions USING btree (status, scheduled_at, job_id) WHERE (status <> 'COMPLETED'::text);

CREATE INDEX idempotency_keys_by_age ON pgtick.idempotency_keys USING btree (created_at);

CREATE INDEX jobs_cancelled ON ONLY pgtick.jobs USING btree (user_id, job_id) WHERE (cancelled_at IS NOT NULL);

CREATE INDEX operations_to_do ON pgtick.operations USING btree (operation_id) WHERE (finished_at IS NULL);

CREATE INDEX pending_executions_by_job ON ONLY pgtick.pending_executions USING btree (job_id);

CREATE INDEX pending_executions_by_user ON ONLY pgtick.pending_executions USING btree (user_id, scheduled_at);

CREATE INDEX pending_executions_for_claiming ON ONLY pgtick.pending_executions USING btree (priority, due_at);

CREATE INDEX pending_executions_held ON ONLY pgtick.pending_executions USING btree (task_key, limit_key, due_at) WHERE (priority > 4);

CREATE INDEX pending_executions_let_in ON ONLY pgtick.pending_executions USING btree (task_key, limit_key) WHERE ((limit_key IS NOT NULL) AND (priority <= 4));

CREATE INDEX running_executions_with_limits ON pgtick.running_executions USING btree (task_key, limit_key) WHERE (limit_key IS NOT NULL);

CREATE UNIQUE INDEX running_executions_without_overlap ON pgtick.running_executions USING btree (job_id) WHERE (overlap IS NOT NULL);

CREATE INDEX schedules_by_next_run ON pgtick.schedules USING btree (next_run_at) WHERE ((next_run_at IS NOT NULL) AND (paused_at IS NULL) AND (cancelled_at IS NULL) AND (problem IS NULL));

CREATE INDEX schedules_by_user ON pgtick.schedules USING btree (user_id, next_run_at);

ALTER TABLE ONLY pgtick.api_tokens
    ADD CONSTRAINT api_tokens_user_id_fkey FOREIGN KEY (user_id) REFERENCES pgtick.users(user_id) ON DELETE CASCADE;

ALTER TABLE ONLY pgtick.task_secrets
    ADD CONSTRAINT task_secrets_task_id_fkey FOREIGN KEY (task_id) REFERENCES pgtick.tasks(task_id) ON DELETE CASCADE;
