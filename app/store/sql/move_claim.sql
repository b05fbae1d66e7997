-- Gives a running execution whose hour of history is gone, or is none, the time it can be kept under, if need be.
update pgtick.running_executions r
set scheduled_at = (
    select free.at
    from generate_series(0, 1000) as n
    cross join lateral (select pgtick.kept_at('finished_executions', r.scheduled_at) + n * interval '1 microsecond') as free (at)
    where not exists (select from pgtick.finished_executions f where f.job_id = r.job_id and f.scheduled_at = free.at)
    order by n
    limit 1
)
where r.claim_id = %(claim_id)s and r.scheduled_at <> pgtick.kept_at('finished_executions', r.scheduled_at)
