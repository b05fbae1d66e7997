-- Extends the leases of these claims. Returns those that still stand, and whether their cancellation was asked for.
update pgtick.running_executions
set lease_expires_at = clock_timestamp() + %(lease)s
where claim_id = any (%(claims)s::int8[])
returning claim_id, cancel_requested_at is not null
