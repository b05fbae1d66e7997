-- Gives schedules their next time as this zone data has it.
update pgtick.schedules s
set next_run_at = d.next_run_at, zone_version = %(zone_version)s
from unnest(%(job_ids)s::uuid[], %(next_run_ats)s::timestamptz[]) as d (job_id, next_run_at)
where s.job_id = d.job_id
