-- Claims whose lease is over.
select claim_id from pgtick.running_executions where lease_expires_at < clock_timestamp() order by lease_expires_at limit %(n)s
