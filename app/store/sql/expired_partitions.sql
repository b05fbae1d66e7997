-- Partitions that nothing needs and nobody archives: statistics past retention, and hours of waiting that are over (dropped
-- only when empty). Executions and jobs are taken out by app.archive.
select partition
from pgtick.partitions
where (parent = 'execution_stats' and until_at < now() - %(retention)s)
   or (parent = 'pending_executions' and until_at < now() - interval '2 hours')
order by until_at
limit 20
