-- Locks schedules whose next occurrence comes before `until`, or was never computed: all of them, or only one. Jobs that
-- were posted while limits or a pause of their task were being set do not know of them: they are held, too.
select job_id, user_id, task_key, next_run_at, expression, timezone,
       case when priority <= 4 and task_key in (select t.task_key from pgtick.tasks t where t.priority > 4) then priority + 4 else priority end,
       policies::text, anchor_at, planned_through, zone_version, runs, skips
from pgtick.schedules
where next_run_at < %(until)s and paused_at is null and cancelled_at is null and problem is null and job_id = coalesce(%(only)s::uuid, job_id)
order by next_run_at
limit %(n)s
for update skip locked
