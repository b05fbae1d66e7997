-- Marks workers that have not been heard of for long, and forgets those nobody asks about any more.
with
lost as (
    update pgtick.workers set state = 'LOST' where state in ('RUNNING', 'DRAINING') and last_seen_at < clock_timestamp() - %(silent)s
)
delete from pgtick.workers where state in ('STOPPED', 'LOST') and last_seen_at < clock_timestamp() - interval '7 days'
