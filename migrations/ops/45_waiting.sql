-- Executions that wait for the run of the same job before them to end (overlap policies). They are pending with a
-- negative priority, which claims do not look at. Whoever makes one wait, and whoever ends a run that is awaited, comes
-- here afterwards; the janitor does for those who died before they could.

create or replace function pgtick.claim_alone(claim_ids bigint[], executions pgtick.pending_executions[], worker_id integer, lease interval)
returns table (claim_id bigint, job_id uuid, scheduled_at timestamptz, due_at timestamptz, task_key integer, priority smallint, attempt smallint,
    losses smallint, suspect boolean, expires_at timestamptz, user_id text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
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
comment on function pgtick.claim_alone is
    'The part of a claim that sees to executions whose runs must not overlap: those free to run, and those kept out. Meant for programs.';

create or replace function pgtick.settle_waiting(job_ids uuid[] default null) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
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
end $$;
comment on function pgtick.settle_waiting is
    'Decides about executions that wait for a run of their job to end: which go on waiting, which start, which are left out. Returns jobs that are in the middle of a change: ask again.';
