-- Claims of this worker that it does not know of: their answers were lost on the way.
select claim_id from pgtick.running_executions where worker_id = %(worker_id)s and claim_id <> all (%(known)s::int8[])
