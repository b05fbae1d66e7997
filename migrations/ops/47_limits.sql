-- Limits of tasks, for all workers together. What waits for a task with limits has a priority of 5 to 8, where claims do
-- not see it. A worker with slots free lets in, under a lock of the task, as much as the limits leave room for: it gets
-- its priority of 1 to 4 and is claimed like any other. What is running, or let in and not claimed, is counted by index;
-- nothing is counted up and down, and tasks without limits have no part in this. While a task is paused, all that waits
-- for it is held back in the same way, and nothing is let in.

create or replace function pgtick.admit(task_key integer, until timestamptz, most integer, after text default null)
returns table (admitted integer, earliest timestamptz, again_s double precision, last_key text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
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
comment on function pgtick.admit is
    'Lets executions of a task with limits that are due before `until` be claimed, `most` of them and as many as its limits leave room for. For workers.';

create or replace function pgtick.apply_limits(task_keys integer[], rekeyed integer[] default '{}') returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
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
comment on function pgtick.apply_limits is 'Brings what waits for tasks in line with whether they have limits or are paused; `rekeyed` are those whose concurrency_key is another one now.';

create or replace function pgtick.free_unlimited() returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
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
comment on function pgtick.free_unlimited is
    'Lets go what is held back for tasks without limits: it came in while their limits were being lifted. Returns how many executions. For workers.';
