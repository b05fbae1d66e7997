-- Stops one schedule that cannot be planned, visibly.
update pgtick.schedules set problem = %(problem)s where job_id = %(job_id)s
