-- Makes a worker's tasks known, as its code declares them. Returns every task's key.
insert into pgtick.tasks as t (task_id, kind, target, description, queue, priority, max_retries, backoff_base_s, backoff_factor, backoff_cap_s,
    timeout_s, options)
select d.task_id, 'python', d.target, d.description, d.queue, d.priority, d.max_retries, d.backoff_base_s, d.backoff_factor, d.backoff_cap_s, d.timeout_s,
    d.options::jsonb
from unnest(%(task_ids)s::text[], %(targets)s::text[], %(descriptions)s::text[], %(queues)s::text[], %(priorities)s::int2[], %(max_retries)s::int2[],
    %(backoff_bases)s::float8[], %(backoff_factors)s::float8[], %(backoff_caps)s::float8[], %(timeouts)s::float8[], %(options)s::text[])
    as d (task_id, target, description, queue, priority, max_retries, backoff_base_s, backoff_factor, backoff_cap_s, timeout_s, options)
order by d.task_id
on conflict (task_id) do update
set kind = excluded.kind, target = excluded.target, description = excluded.description, queue = excluded.queue, priority = excluded.priority,
    max_retries = excluded.max_retries, backoff_base_s = excluded.backoff_base_s, backoff_factor = excluded.backoff_factor,
    backoff_cap_s = excluded.backoff_cap_s, timeout_s = excluded.timeout_s, options = excluded.options, updated_at = now()
returning t.task_id, t.task_key
