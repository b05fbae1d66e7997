-- Looks for everything that will hurt soon, brings pgtick.findings in line with it, and returns what changed: one row for
-- each new finding and for each that is gone. One worker at a time; others leave it to that one.
with
turn as materialized (
    select pg_try_advisory_xact_lock(7067847) as mine
),
-- A snapshot keeps VACUUM from removing what was deleted since: tables and indexes grow, and claims get slower.
snapshots as (
    select 'old_snapshot' as kind, 'pid ' || pid as subject,
           concat('A transaction of pid ', pid, ' (', coalesce(nullif(application_name, ''), 'no application name'), ', user ', usename, ', ', state, ') is open since ',
               date_trunc('second', xact_start), ' and keeps VACUUM from cleaning up. End it: select pg_terminate_backend(', pid, ');') as sentence
    from pg_stat_activity
    where backend_type = 'client backend' and pid <> pg_backend_pid() and datname = current_database()
      and (backend_xmin is not null or backend_xid is not null) and xact_start < clock_timestamp() - %(snapshot_age)s
    union all
    select 'old_snapshot', 'prepared transaction ' || gid,
           concat('The prepared transaction ', gid, ' waits since ', date_trunc('second', prepared), ' and keeps VACUUM from cleaning up. End it: rollback prepared ',
               quote_literal(gid), ';')
    from pg_prepared_xacts
    where database = current_database() and prepared < clock_timestamp() - %(snapshot_age)s
),
slots as (
    select 'replication_slot', 'slot ' || slot_name,
           concat('Replication slot ', slot_name, ' is not in use and holds back ', pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)),
               ' of WAL, and VACUUM. If nobody comes back for it: select pg_drop_replication_slot(', quote_literal(slot_name), ');')
    from pg_replication_slots
    where not active and restart_lsn is not null
      and (pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) > 1024 ^ 3 or age(coalesce(catalog_xmin, xmin)) > 1000000)
),
-- Notifications stay until every connection that listens has read them, which none does inside of a transaction. Nobody
-- can see which connections listen.
queue as (
    select 'notify_queue', 'notify queue',
           concat('The queue of NOTIFY is full to ', round(pg_notification_queue_usage()::numeric * 100), ' per cent: a connection that listens stays in a transaction', (
               select concat(', most likely that of pid ', pid, ' (', coalesce(nullif(application_name, ''), 'no application name'), ', user ', usename, ', ', state, '), open since ',
                   date_trunc('second', xact_start), '. End it: select pg_terminate_backend(', pid, ');')
               from pg_stat_activity
               where backend_type = 'client backend' and pid <> pg_backend_pid() and xact_start is not null
               order by state = 'active', xact_start
               limit 1
           ))
    where pg_notification_queue_usage() > 0.1
),
partitions as (
    select 'partitions_missing', parent,
           concat(parent, ' has partitions until ', date_trunc('second', until_at), ' only: workers do not get to make more. See pg_locks for who holds a lock on it, then:',
               ' select pgtick.ensure_partitions();')
    from pgtick.partition_windows
    where until_at < clock_timestamp() + interval '3 hours'
    union all
    select 'partitions_missing', partition,
           concat('The partition ', partition, ' was dropped or detached by hand: nothing of its time can be stored. Workers do not get to make it again;',
               ' to see why: select pgtick.ensure_partitions();')
    from pgtick.missing_partitions()
),
-- What should have started by now, by task, also where its row was deleted: neither a limit nor a run of its own job holds it back.
waiting as materialized (
    select coalesce(t.task_id, '#' || late.task_key) as task_id, t.pool, late.*
    from (
        select task_key, min(due_at) as due_at, count(*) as executions
        from pgtick.pending_executions
        where due_at < now() - interval '2 s' and due_at > now() - interval '7 days' and priority between 1 and 4
        group by task_key
    ) as late
    left join pgtick.tasks t on t.task_key = late.task_key
),
known as materialized (
    select distinct unnest(task_keys) as task_key from pgtick.workers
    where state = 'RUNNING' and pgtick.is_live(last_seen_at)
),
unknown as (
    select 'unknown_task', 'task ' || task_id,
           concat(executions, case executions when 1 then ' execution' else ' executions' end, ' of task ', task_id, ' waiting, the oldest since ',
               date_trunc('second', due_at), ', but no live worker knows that task. Start a worker whose PGTICK_TASKS and PGTICK_QUEUES include it, or cancel its jobs.')
    from waiting
    where task_key not in (select task_key from known)
),
-- More workers help only where slots are short.
held as materialized (
    select r.worker_id, t.pool, count(*) as executions
    from pgtick.running_executions r
    join pgtick.tasks t using (task_key)
    group by r.worker_id, t.pool
),
late as (
    select 'late', 'task ' || task_id,
           concat(executions, case executions when 1 then ' execution' else ' executions' end, ' of task ', task_id, ' late, the oldest waiting since ',
               date_trunc('second', due_at), case
                   when free.slots >= executions then ', though workers have free slots. To see why: select pgtick.explain(execution_id) from pgtick.late limit 10;'
                   else concat('. Start more workers, or raise ',
                       case pool when 'thread' then 'PGTICK_THREADS' when 'process' then 'PGTICK_PROCESSES' else 'PGTICK_CONCURRENCY' end, '.')
               end)
    from waiting
    cross join lateral (
        select sum(greatest(0, coalesce((w.pools -> waiting.pool ->> 'capacity')::integer, w.capacity)
                   - greatest(coalesce((w.pools -> waiting.pool ->> 'taken')::integer, w.running), held.executions))) as slots
        from pgtick.workers w
        left join held on held.worker_id = w.worker_id and held.pool = waiting.pool
        where w.state = 'RUNNING' and w.last_seen_at > now() - interval '15 s' and w.blocked_since is null
          and waiting.task_key = any (w.task_keys)
    ) as free
    where task_key in (select task_key from known)
),
blocked as (
    select 'blocked_worker', 'worker ' || w.name,
           concat('The event loop of worker ', w.name, ' has not come round since ', date_trunc('second', w.blocked_since),
               ': a task blocks it, and nothing else starts or ends there. It runs ', coalesce(there.tasks, 'nothing that is known'),
               '. Make a task that blocks a plain function, which gets a thread, or isolate it; until then end the process of that worker (host:pid).')
    from pgtick.workers w
    cross join lateral (
        select string_agg(concat(n, ' × ', task_id), ', ' order by n desc, task_id) as tasks
        from (
            select t.task_id, count(*) as n
            from pgtick.running_executions r
            join pgtick.tasks t using (task_key)
            where r.worker_id = w.worker_id and r.due_at <= w.blocked_since + interval '1 s'
            group by t.task_id
            order by n desc, t.task_id
            limit 5
        ) as longest
    ) as there
    where w.state in ('RUNNING', 'DRAINING') and pgtick.is_live(w.last_seen_at) and w.blocked_since is not null
),
found as materialized (
    select f.*
    from turn,
        lateral (
            select * from snapshots union all select * from slots union all select * from queue union all select * from partitions
            union all select * from unknown union all select * from late
            union all select * from blocked
        ) as f (kind, subject, sentence)
    where turn.mine
),
fresh as (
    insert into pgtick.findings as f (kind, subject, sentence)
    select kind, subject, sentence from found
    on conflict (kind, subject) do update set seen_at = clock_timestamp(), sentence = excluded.sentence
    returning f.kind, f.subject, f.sentence, f.found_at = f.seen_at as is_new
),
gone as (
    delete from pgtick.findings f
    using turn
    where turn.mine and not exists (select from found where found.kind = f.kind and found.subject = f.subject)
    returning f.kind, f.subject, f.sentence
)
select 'new', kind, subject, sentence from fresh where is_new
union all
select 'gone', kind, subject, sentence from gone
