-- Says which tasks a worker knows by now.
update pgtick.workers set task_keys = %(task_keys)s::int4[] where worker_id = %(worker_id)s
