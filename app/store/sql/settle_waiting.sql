-- Sees to executions that wait for a run of their job to end: of these jobs, or of all. Returns jobs to ask about again.
select pgtick.settle_waiting(%(job_ids)s::uuid[])
