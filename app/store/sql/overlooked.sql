-- For each priority, the earliest execution of these tasks that waits since before `until`. Claims hold locks on what they
-- take; this reads, and gets in nobody's way.
select lane.priority, oldest.due_at
from unnest(array[1, 2, 3, 4]::smallint[]) as lane (priority)
cross join lateral (
    select p.due_at
    from pgtick.pending_executions p
    where p.priority = lane.priority and p.due_at < %(until)s and p.task_key = any (%(task_keys)s)
    order by p.due_at
    limit 1
) as oldest
