-- Adds this worker's counts of some minutes; readers sum the rows.
insert into pgtick.execution_stats (minute, task_key, worker_id, started, completed, failed, retried, run_ms, lateness)
select to_timestamp(d.minute), d.task_key, %(worker_id)s, d.started, d.completed, d.failed, d.retried, d.run_ms, d.lateness::int4[]
from unnest(%(minutes)s::float8[], %(task_keys)s::int4[], %(started)s::int4[], %(completed)s::int4[], %(failed)s::int4[], %(retried)s::int4[],
    %(run_ms)s::int8[], %(lateness)s::text[]) as d (minute, task_key, started, completed, failed, retried, run_ms, lateness)
