-- Extends the leases of this worker's claims where they are no longer fresh (or last too long, as the clock was set back),
-- and says that it is alive, without ever waiting for a row that somebody else has locked. Returns whether a drain was
-- asked for, and which of its claims stand, are to be stopped, or must not start.
with
aged as materialized (
    select claim_id from pgtick.running_executions
    where worker_id = %(worker_id)s
      and lease_expires_at not between clock_timestamp() + %(lease)s - %(renew)s / 2 and clock_timestamp() + %(lease)s
    for update skip locked
),
kept as (
    update pgtick.running_executions r
    set lease_expires_at = clock_timestamp() + %(lease)s
    where r.claim_id = any (array(select claim_id from aged))
),
here as materialized (
    select worker_id from pgtick.workers where worker_id = %(worker_id)s for update skip locked
),
alive as (
    update pgtick.workers w
    set state = %(state)s, running = %(running)s, pools = %(pools)s::jsonb, last_seen_at = clock_timestamp(),
        blocked_since = clock_timestamp() - %(blocked_s)s * interval '1 second',
        stopped_at = case when %(state)s = 'STOPPED' then clock_timestamp() end
    from here
    where w.worker_id = here.worker_id
),
-- A row that was deleted by hand comes back.
again as (
    insert into pgtick.workers (worker_id, name, state, running, capacity, pools, task_keys, queues, version)
    overriding system value
    select %(worker_id)s, %(name)s, %(state)s, %(running)s, %(capacity)s, %(pools)s::jsonb, %(task_keys)s::int4[], %(queues)s::text[], %(version)s
    where not exists (select from pgtick.workers where worker_id = %(worker_id)s)
    on conflict do nothing
),
mine as materialized (
    select claim_id, cancel_requested_at is not null as cancel, revoked_at is not null as revoke
    from pgtick.running_executions
    where worker_id = %(worker_id)s
)
select exists (select from pgtick.workers where worker_id = %(worker_id)s and drain_requested_at is not null),
       array(select claim_id from mine), array(select claim_id from mine where cancel), array(select claim_id from mine where revoke)
