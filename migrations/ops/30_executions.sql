-- All executions in all states, as people and the API read them. The next occurrence that stands in schedules is PENDING too,
-- also that of a single run that is paused.
drop view if exists pgtick.executions;
create view pgtick.executions as
select e.job_id, e.scheduled_at, t.task_id, e.user_id, e.status, e.attempt, e.due_at, e.started_at, e.finished_at,
       e.started_at - e.due_at as lateness, e.worker_id, e.losses, e.error, e.result, e.errors, e.origin, e.skipped,
       pgtick.execution_id(e.scheduled_at, e.job_id) as execution_id
from (
    select job_id, scheduled_at, user_id, task_key, status, attempt, due_at, started_at, finished_at, worker_id, losses, error,
           result, errors, origin, skipped
    from pgtick.finished_executions
    union all
    select job_id, scheduled_at, user_id, task_key, 'IN_PROGRESS', attempt, due_at, greatest(due_at, claimed_at), null, worker_id, losses,
           errors -> -1 ->> 'error', null, errors, origin, null
    from pgtick.running_executions
    union all
    select job_id, scheduled_at, user_id, task_key, case when attempt = 0 then 'PENDING' else 'RETRYING' end, attempt, due_at, null, null, null,
           losses, errors -> -1 ->> 'error', null, errors, origin, null
    from pgtick.pending_executions
    union all
    select job_id, next_run_at, user_id, task_key, case when cancelled_at is null then 'PENDING' else 'CANCELLED' end, 0::smallint, next_run_at, null,
           cancelled_at, null, 0::smallint, problem, null, null, null, null
    from pgtick.schedules
    where next_run_at is not null and (expression is null or paused_at is null and problem is null) and (skips is null or next_run_at <> all (skips))
    union all
    -- Skipped by hand, and too far ahead for history to have a place for it.
    select s.job_id, skip.at, s.user_id, s.task_key, 'SKIPPED', 0::smallint, skip.at, null, null, null, 0::smallint, 'skipped by hand', null, null, null, 1
    from pgtick.schedules s
    cross join lateral unnest(s.skips) as skip (at)
    where s.skips is not null
      and not exists (select from pgtick.finished_executions f where f.job_id = s.job_id and f.scheduled_at = skip.at)
) e
left join pgtick.tasks t using (task_key);
comment on view pgtick.executions is 'Every execution in every state: PENDING, IN_PROGRESS, RETRYING, COMPLETED, FAILED, CANCELLED, SKIPPED.';
