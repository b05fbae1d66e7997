-- Locks schedules whose next time was computed with other zone data, in the order of their ids.
select job_id, expression, timezone, policies::text, anchor_at, planned_through, runs, skips
from pgtick.schedules
where job_id > %(after)s and zone_version <> %(zone_version)s and expression is not null and next_run_at is not null and paused_at is null
    and problem is null
order by job_id
limit %(n)s
for update skip locked
