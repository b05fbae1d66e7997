-- Says that this worker is alive and what it does; reads the database's clock and whether a drain was asked for.
-- A row that was deleted by hand comes back.
insert into pgtick.workers as w (worker_id, name, state, running, capacity, task_keys, queues, version)
overriding system value
values (%(worker_id)s, %(name)s, %(state)s, %(running)s, %(capacity)s, %(task_keys)s::int4[], %(queues)s::text[], %(version)s)
on conflict (worker_id) do update
set state = excluded.state, running = excluded.running, last_seen_at = clock_timestamp(),
    stopped_at = case when excluded.state = 'STOPPED' then clock_timestamp() end
returning extract(epoch from clock_timestamp())::float8, w.drain_requested_at is not null
