-- Leaves claims to the janitors, as if their worker had died. Returns those that still stood.
update pgtick.running_executions set worker_id = 0, lease_expires_at = clock_timestamp()
where claim_id = any (%(claims)s::int8[])
returning claim_id, null::uuid
