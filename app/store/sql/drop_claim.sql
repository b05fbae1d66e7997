-- Ends a claim without storing anything.
delete from pgtick.running_executions where claim_id = %(claim_id)s
