-- Locks schedules whose next occurrence comes before `until`, or was never computed: all of them, or only one.
select job_id, user_id, task_key, next_run_at, expression, timezone, priority, policies::text, anchor_at, planned_through, zone_version, runs, skips
from pgtick.schedules
where next_run_at < %(until)s and paused_at is null and cancelled_at is null and problem is null and job_id = coalesce(%(only)s::uuid, job_id)
order by next_run_at
limit %(n)s
for update skip locked
