-- Registers an HTTP task, or changes one, which stays paused if it is. Returns its key; nothing when a worker's code
-- registers the task.
insert into pgtick.tasks as t (task_id, kind, target, description, queue, priority, max_retries, backoff_base_s, backoff_factor, backoff_cap_s,
    backoff_jitter, timeout_s, max_concurrent, concurrency_key, max_per_key, rate_per_s, parameters_schema, options)
values (%(task_id)s, 'http', %(target)s, %(description)s, %(queue)s, %(priority)s, %(max_retries)s, %(base_s)s, %(factor)s, %(cap_s)s, %(jitter)s,
    %(timeout_s)s, %(max_concurrent)s, %(concurrency_key)s, %(max_per_key)s, %(rate_per_s)s, %(schema)s, %(options)s)
on conflict (task_id) do update
set target = excluded.target, description = excluded.description, queue = excluded.queue,
    priority = excluded.priority + case when t.paused_at is not null and excluded.priority <= 4 then 4 else 0 end,
    max_retries = excluded.max_retries, backoff_base_s = excluded.backoff_base_s, backoff_factor = excluded.backoff_factor,
    backoff_cap_s = excluded.backoff_cap_s, backoff_jitter = excluded.backoff_jitter, timeout_s = excluded.timeout_s,
    max_concurrent = excluded.max_concurrent, concurrency_key = excluded.concurrency_key, max_per_key = excluded.max_per_key,
    rate_per_s = excluded.rate_per_s, parameters_schema = excluded.parameters_schema, options = excluded.options, updated_at = now()
where t.kind = 'http'
returning task_key
