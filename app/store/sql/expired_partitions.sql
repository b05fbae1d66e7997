-- Partitions that nothing needs: past retention, or hours of waiting that are over (dropped only when empty).
-- Days of jobs are not among them: a job may still stand.
select partition
from pgtick.partitions
where (parent in ('finished_executions', 'execution_stats') and until_at < now() - %(retention)s)
   or (parent = 'pending_executions' and until_at < now() - interval '2 hours')
order by until_at
limit 20
