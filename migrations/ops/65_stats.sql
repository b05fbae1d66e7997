-- Statistics of the past hour are by minute, task and worker, some rows each; older ones are one row by minute and task, so
-- that looking at a week is as quick as looking at an hour.

create or replace function pgtick.roll_up_stats(before timestamptz default now() - interval '1 hour') returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    first_at timestamptz;
    gone integer;
begin
    -- One at a time; the others leave it to that one.
    if not pg_try_advisory_xact_lock(7067850) then
        return 0;
    end if;
    select min(e.minute) into first_at from pgtick.execution_stats e where e.worker_id <> 0 and e.minute < before;
    if first_at is null then
        return 0;
    end if;
    -- Ten minutes of them a call: what it holds is short.
    with
    old as (
        delete from pgtick.execution_stats e
        where e.worker_id <> 0 and e.minute >= first_at and e.minute < least(before, first_at + interval '10 minutes')
        returning e.*
    ),
    summed as (
        insert into pgtick.execution_stats (minute, task_key, worker_id, started, completed, failed, retried, run_ms, lateness)
        select minute, task_key, 0, sum(started), sum(completed), sum(failed), sum(retried), sum(run_ms),
               array[coalesce(sum(lateness[1]), 0), coalesce(sum(lateness[2]), 0), coalesce(sum(lateness[3]), 0), coalesce(sum(lateness[4]), 0), coalesce(sum(lateness[5]), 0), coalesce(sum(lateness[6]), 0), coalesce(sum(lateness[7]), 0), coalesce(sum(lateness[8]), 0),
                     coalesce(sum(lateness[9]), 0), coalesce(sum(lateness[10]), 0), coalesce(sum(lateness[11]), 0), coalesce(sum(lateness[12]), 0), coalesce(sum(lateness[13]), 0), coalesce(sum(lateness[14]), 0), coalesce(sum(lateness[15]), 0)]
        from old
        group by minute, task_key
    )
    select count(*) into gone from old;
    return gone;
end $$;
comment on function pgtick.roll_up_stats is 'Replaces the statistics of single workers before that time by their sums (worker_id 0), ten minutes a call; returns how many rows that were.';
