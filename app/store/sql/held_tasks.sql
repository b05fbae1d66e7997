-- Those of these tasks with limits for which something waits that comes due before `until`, in no order.
select t.task_key
from unnest(%(task_keys)s::int4[]) as t (task_key)
where exists (select from pgtick.pending_executions p where p.task_key = t.task_key and p.priority > 4 and p.due_at < %(until)s)
order by random()
