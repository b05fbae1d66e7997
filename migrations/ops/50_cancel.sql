-- Cancelling: a whole job, or one of its executions. An execution may move from table to table meanwhile; each statement
-- here sees what was committed when it began and waits for rows that are just moving, so looking twice finds it.

create or replace function pgtick.cancel_pending(job_id uuid, first_at timestamptz default '-infinity', last_at timestamptz default 'infinity') returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    cancelled integer;
begin
    with
    waiting as (
        delete from pgtick.pending_executions p
        where p.job_id = cancel_pending.job_id and p.scheduled_at between first_at and last_at
        returning p.*
    ),
    over as (
        insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, losses, origin,
            error, errors)
        select job_id, pgtick.kept_at('finished_executions', scheduled_at), user_id, task_key, 'CANCELLED', attempt, due_at, clock_timestamp(),
            losses, origin, errors -> -1 ->> 'error', errors
        from waiting
        on conflict do nothing
    )
    select count(*) into cancelled from waiting;
    return cancelled;
end $$;
comment on function pgtick.cancel_pending is 'The part of cancelling that sees to pending executions: of a job, those scheduled from first_at to last_at. Returns how many.';

create or replace function pgtick.cancel_job(job_id uuid) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    claim record;
    cancelled integer := 0;
begin
    update pgtick.jobs j set cancelled_at = now() where j.job_id = cancel_job.job_id and j.cancelled_at is null;
    -- Waits for a planner that is just making occurrences of it pending. A single run for which there is no partition yet
    -- stays there, cancelled.
    update pgtick.schedules s set cancelled_at = now()
    where s.job_id = cancel_job.job_id and s.expression is null and s.next_run_at is not null and s.cancelled_at is null;
    get diagnostics cancelled = row_count;
    delete from pgtick.schedules s where s.job_id = cancel_job.job_id and s.cancelled_at is null;
    for turn in 1..2 loop
        cancelled := cancelled + pgtick.cancel_pending(job_id);
        -- Claimed, but perhaps not started: its worker decides, and it alone knows.
        for claim in
            update pgtick.running_executions r set revoked_at = clock_timestamp()
            where r.job_id = cancel_job.job_id and r.revoked_at is null
            returning r.claim_id, r.due_at > clock_timestamp() as ahead
        loop
            perform pgtick.tell('pgtick_revoke', claim.claim_id::text);
            cancelled := cancelled + claim.ahead::integer;
        end loop;
    end loop;
    perform pgtick.audit('cancel', job_id::text, jsonb_build_object('cancelled', cancelled));
    return cancelled;
end $$;
comment on function pgtick.cancel_job is 'Cancels what has not started of a job, retries included, for good; what runs goes on. Returns how many executions that were.';

create or replace function pgtick.stop_execution(job_id uuid, scheduled_at timestamptz) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    claim bigint;
    final text;
begin
    for turn in 1..3 loop
        if pgtick.cancel_pending(job_id, scheduled_at, scheduled_at) > 0 then
            return 'CANCELLED';
        end if;
        update pgtick.running_executions r set cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())
        where r.job_id = stop_execution.job_id and r.scheduled_at = stop_execution.scheduled_at
        returning r.claim_id into claim;
        if claim is not null then
            perform pgtick.tell('pgtick_cancel', claim::text);
            return 'IN_PROGRESS';
        end if;
        select f.status into final from pgtick.finished_executions f
        where f.job_id = stop_execution.job_id and f.scheduled_at = stop_execution.scheduled_at;
        if final is not null then
            return final;
        end if;
    end loop;
    return null;
end $$;
comment on function pgtick.stop_execution is 'What pgtick.cancel_execution does, without an audit entry: for programs, which do it for a reason that is on record.';

create or replace function pgtick.cancel_execution(job_id uuid, scheduled_at timestamptz) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    final text := pgtick.stop_execution(job_id, scheduled_at);
    standing pgtick.schedules;
begin
    if final is null then
        -- Listed as PENDING, but there is no row of its own yet.
        select * into standing from pgtick.schedules s where s.job_id = cancel_execution.job_id and s.next_run_at = cancel_execution.scheduled_at;
        if standing.expression is not null then
            raise exception 'scheduled_at: the occurrence of % of a recurring job is not pending yet; skip it instead', scheduled_at
                using errcode = 'object_not_in_prerequisite_state';
        elsif standing.job_id is not null then
            perform pgtick.cancel_job(job_id);
            return 'CANCELLED';
        end if;
    end if;
    if final in ('CANCELLED', 'IN_PROGRESS') then
        perform pgtick.audit('cancel_execution', pgtick.execution_id(scheduled_at, job_id));
    end if;
    return final;
end $$;
comment on function pgtick.cancel_execution is 'Cancels one execution. Returns its status then: CANCELLED; IN_PROGRESS when it runs and is being stopped; another when it was over; null when there is none.';
