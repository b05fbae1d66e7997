-- Extends the leases of these claims and says that this worker is alive, in one round trip: while tasks hold the
-- interpreter, the lease keeper gets one turn at a time. It never waits for a row that somebody else has locked.
with
free as materialized (
    select claim_id from pgtick.running_executions where claim_id = any (%(claims)s::int8[]) for update skip locked
),
kept as (
    update pgtick.running_executions r
    set lease_expires_at = clock_timestamp() + %(lease)s
    from free
    where r.claim_id = free.claim_id
    returning r.claim_id, r.cancel_requested_at is not null as cancel, r.revoked_at is not null as revoke
),
-- Locked, by its own report or by a person: it stands, though its lease is not longer now.
locked as (
    select r.claim_id, r.cancel_requested_at is not null as cancel, r.revoked_at is not null as revoke
    from pgtick.running_executions r
    where r.claim_id = any (%(claims)s::int8[]) and r.claim_id <> all (select claim_id from free)
),
here as materialized (
    select worker_id from pgtick.workers where worker_id = %(worker_id)s for update skip locked
),
alive as (
    update pgtick.workers w
    set state = %(state)s, running = %(running)s, last_seen_at = clock_timestamp(),
        stopped_at = case when %(state)s = 'STOPPED' then clock_timestamp() end
    from here
    where w.worker_id = here.worker_id
),
-- A row that was deleted by hand comes back.
again as (
    insert into pgtick.workers (worker_id, name, state, running, capacity, task_keys, queues, version)
    overriding system value
    select %(worker_id)s, %(name)s, %(state)s, %(running)s, %(capacity)s, %(task_keys)s::int4[], %(queues)s::text[], %(version)s
    where not exists (select from pgtick.workers where worker_id = %(worker_id)s)
    on conflict do nothing
)
select extract(epoch from clock_timestamp())::float8,
       exists (select from pgtick.workers where worker_id = %(worker_id)s and drain_requested_at is not null),
       array(select claim_id from kept), array(select claim_id from locked),
       array(select claim_id from kept where cancel union all select claim_id from locked where cancel),
       array(select claim_id from kept where revoke union all select claim_id from locked where revoke)
