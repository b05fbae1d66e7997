-- Makes occurrences pending, records those left out, and moves the schedules on, in one statement: each occurrence is
-- made exactly once.
with
moved as (
    update pgtick.schedules s
    set next_run_at = d.next_run_at, planned_through = coalesce(d.planned_through, s.planned_through), runs = d.runs, zone_version = %(zone_version)s,
        skips = case when s.skips is not null then (select array_agg(at order by at) from unnest(s.skips) as left_over (at) where at > now()) end
    from unnest(%(job_ids)s::uuid[], %(next_run_ats)s::timestamptz[], %(planned_throughs)s::timestamptz[], %(runs)s::int8[])
        as d (job_id, next_run_at, planned_through, runs)
    where s.job_id = d.job_id
),
-- A one-off that stood beyond the partitions has no further occurrence.
ended as (
    delete from pgtick.schedules s where s.job_id = any (%(ended)s::uuid[])
),
left_out as (
    insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, skipped, error)
    select d.job_id, pgtick.kept_at('finished_executions', d.scheduled_at), d.user_id, d.task_key, 'SKIPPED', 0, d.scheduled_at, now(), d.skipped, d.reason
    from unnest(%(skipped_jobs)s::uuid[], %(skipped_ats)s::timestamptz[], %(skipped_user_ids)s::text[], %(skipped_task_keys)s::int4[],
        %(skipped_reasons)s::text[], %(skipped_counts)s::int4[]) as d (job_id, scheduled_at, user_id, task_key, reason, skipped)
    on conflict do nothing
)
insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, overlap, expires_at)
select d.job_id, d.scheduled_at,
    -- What was missed long ago waits where there still is a partition.
    case when d.due_at < (select from_at from pgtick.partition_windows where parent = 'pending_executions') then pgtick.kept_at('pending_executions', d.due_at)
         else d.due_at end,
    d.user_id, d.task_key, d.priority, d.overlap, d.expires_at
from unnest(%(of_jobs)s::uuid[], %(scheduled_ats)s::timestamptz[], %(due_ats)s::timestamptz[], %(user_ids)s::text[], %(task_keys)s::int4[],
    %(priorities)s::int2[], %(overlaps)s::text[], %(expire_ats)s::timestamptz[]) as d (job_id, scheduled_at, due_at, user_id, task_key, priority, overlap, expires_at)
