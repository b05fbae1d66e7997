-- Every HTTP task, with what its endpoint is sent.
select t.task_id, t.task_key, t.target, t.options::text as options, s.secret, s.headers::text as headers, t.queue, t.priority, t.max_retries,
       t.backoff_base_s, t.backoff_factor, t.backoff_cap_s, t.backoff_jitter, t.timeout_s, t.max_concurrent, t.concurrency_key, t.max_per_key,
       t.rate_per_s
from pgtick.tasks t
join pgtick.task_secrets s using (task_id)
where t.kind = 'http'
order by t.task_key
