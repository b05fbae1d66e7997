-- Leaves a claim to the janitors, as if its worker had died.
update pgtick.running_executions set worker_id = 0, lease_expires_at = clock_timestamp() where claim_id = %(claim_id)s
