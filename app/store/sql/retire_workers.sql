-- Marks workers that have not been heard of for long, and forgets those nobody asks about any more.
with
lost as (
    update pgtick.workers set state = 'LOST'
    where worker_id in (
        select worker_id from pgtick.workers
        where state in ('RUNNING', 'DRAINING') and last_seen_at < clock_timestamp() - %(silent)s
        for update skip locked
    )
),
old as materialized (
    select worker_id from pgtick.workers
    where state in ('STOPPED', 'LOST') and last_seen_at < clock_timestamp() - interval '7 days'
    for update skip locked
)
delete from pgtick.workers w using old where w.worker_id = old.worker_id
