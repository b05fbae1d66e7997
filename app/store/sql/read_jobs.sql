-- What these jobs are to do; the first and last of their ids leave out the days of others while planning.
-- Parameters as text: the worker decodes them row by row, so that one unreadable row cannot spoil the batch.
select job_id::text, parameters::text, max_retries, timeout_s, trace::text
from pgtick.jobs
where job_id = any (%(job_ids)s::uuid[]) and job_id between %(first)s::uuid and %(last)s::uuid
