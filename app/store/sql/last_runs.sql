-- The newest run of each of these jobs that has ended: of those scheduled within [low, high), which is a day or so, or at
-- the job's last planned time before that. The times are constants, so that other hours are left out while planning.
-- What was left out (SKIPPED) did not run.
select w.job_id::text, f.status, f.scheduled_at
from unnest(%(job_ids)s::uuid[], %(planned)s::timestamptz[]) as w (job_id, planned)
cross join lateral (
    -- From the newest hour back by the primary key, and no further than the first that is found.
    (select r.status, r.scheduled_at
     from pgtick.finished_executions r
     where r.job_id = w.job_id and r.scheduled_at >= %(low)s and r.scheduled_at < %(high)s and r.status <> 'SKIPPED'
     order by r.scheduled_at desc
     limit 1)
    union all
    (select p.status, p.scheduled_at
     from pgtick.finished_executions p
     where p.job_id = w.job_id and p.scheduled_at = w.planned and p.scheduled_at = any (%(earlier)s::timestamptz[])
       and p.status <> 'SKIPPED')
    limit 1
) as f
