-- Makes a worker's tasks known, as its code declares them; those that are paused stay so. Returns every task's key.
insert into pgtick.tasks as t (task_id, kind, target, pool, description, queue, priority, max_retries, backoff_base_s, backoff_factor, backoff_cap_s,
    backoff_jitter, timeout_s, max_concurrent, concurrency_key, max_per_key, rate_per_s, parameters_schema)
select d.task_id, 'python', d.target, d.pool, d.description, d.queue, d.priority, d.max_retries, d.backoff_base_s, d.backoff_factor, d.backoff_cap_s,
    d.backoff_jitter, d.timeout_s, d.max_concurrent, d.concurrency_key, d.max_per_key, d.rate_per_s, d.parameters_schema::jsonb
from unnest(%(task_ids)s::text[], %(targets)s::text[], %(pools)s::text[], %(descriptions)s::text[], %(queues)s::text[], %(priorities)s::int2[], %(max_retries)s::int2[],
    %(backoff_bases)s::float8[], %(backoff_factors)s::float8[], %(backoff_caps)s::float8[], %(backoff_jitters)s::float8[], %(timeouts)s::float8[],
    %(max_concurrents)s::int4[], %(concurrency_keys)s::text[], %(max_per_keys)s::int4[], %(rates)s::float8[], %(schemas)s::text[])
    as d (task_id, target, pool, description, queue, priority, max_retries, backoff_base_s, backoff_factor, backoff_cap_s, backoff_jitter, timeout_s,
        max_concurrent, concurrency_key, max_per_key, rate_per_s, parameters_schema)
order by d.task_id
on conflict (task_id) do update
set kind = excluded.kind, target = excluded.target, pool = excluded.pool, description = excluded.description, queue = excluded.queue,
    priority = excluded.priority + case when t.paused_at is not null and excluded.priority <= 4 then 4 else 0 end,
    max_retries = excluded.max_retries, backoff_base_s = excluded.backoff_base_s, backoff_factor = excluded.backoff_factor,
    backoff_cap_s = excluded.backoff_cap_s, backoff_jitter = excluded.backoff_jitter, timeout_s = excluded.timeout_s,
    max_concurrent = excluded.max_concurrent, concurrency_key = excluded.concurrency_key, max_per_key = excluded.max_per_key,
    rate_per_s = excluded.rate_per_s, parameters_schema = excluded.parameters_schema, options = '{}', updated_at = now()
returning t.task_id, t.task_key
