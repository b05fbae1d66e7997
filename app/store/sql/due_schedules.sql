-- Which schedules select_schedules would lock, without reading what else is in them.
select job_id
from pgtick.schedules
where next_run_at < %(until)s and paused_at is null and cancelled_at is null and problem is null
order by next_run_at
limit %(n)s
