-- A row for this start of a worker process; its id is never used again.
insert into pgtick.workers (name, capacity, pools, task_keys, queues, version)
values (%(name)s, %(capacity)s, %(pools)s::jsonb, %(task_keys)s::int4[], %(queues)s::text[], %(version)s)
returning worker_id
