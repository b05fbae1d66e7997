-- Partitions that nothing needs and nobody archives: statistics past retention, and hours of waiting that are over, save
-- those in which something waits still. Executions and jobs are taken out by app.archive.
select partition
from pgtick.partitions
where (parent = 'execution_stats' and until_at < now() - %(retention)s)
   or (parent = 'pending_executions' and until_at < now() - interval '2 hours'
       and (select 1 from pgtick.pending_executions p where p.due_at >= from_at and p.due_at < until_at limit 1) is null)
order by until_at
limit 20
