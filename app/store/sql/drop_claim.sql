-- Ends claims without storing anything.
delete from pgtick.running_executions where claim_id = any (%(claims)s::int8[])
