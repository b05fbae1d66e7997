-- Acting on many executions: what is asked for is written down, then done in batches, by whoever has time; how far it is
-- can be seen in pgtick.operations.

create or replace function pgtick.matching(op pgtick.operations, max_count integer)
returns table (job_id uuid, scheduled_at timestamptz, standing boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
    of_user text := op.filter ->> 'user_id';
    of_task integer := (op.filter ->> 'task_key')::integer;
    from_at timestamptz := coalesce((op.filter ->> 'start_time')::timestamptz, '-infinity');
    until_at timestamptz := coalesce((op.filter ->> 'end_time')::timestamptz, 'infinity');
    with_error text := lower(op.filter ->> 'error');
    statuses text[] := array(select jsonb_array_elements_text(op.filter -> 'statuses'));
    newest_job uuid := pgtick.uuid7_floor(op.created_at + interval '1 ms');
begin
    if op.action = 'rerun' then
        -- In the order of history, on from where the last batch ended. What was run again already is left out.
        return query
        select f.job_id, f.scheduled_at, false
        from pgtick.finished_executions f
        where f.status = any (statuses) and f.status <> 'COMPLETED'
          and f.scheduled_at >= greatest(from_at, op.after_at) and f.scheduled_at < least(until_at, op.created_at)
          and (f.scheduled_at, f.job_id) > (coalesce(op.after_at, '-infinity'), coalesce(op.after_id, '00000000-0000-0000-0000-000000000000'))
          and (of_user is null or f.user_id = of_user) and (of_task is null or f.task_key = of_task)
          and (with_error is null or strpos(lower(f.error), with_error) > 0)
          and exists (select from pgtick.jobs j join pgtick.tasks t using (task_id) where j.job_id = f.job_id and j.cancelled_at is null)
          and not exists (select from pgtick.pending_executions o
                          where o.job_id = f.job_id and o.origin = 'retry of ' || pgtick.execution_id(f.scheduled_at, f.job_id))
          and not exists (select from pgtick.running_executions o
                          where o.job_id = f.job_id and o.origin = 'retry of ' || pgtick.execution_id(f.scheduled_at, f.job_id))
          and not exists (select from pgtick.finished_executions o
                          where o.job_id = f.job_id and o.scheduled_at > f.scheduled_at
                            and o.origin = 'retry of ' || pgtick.execution_id(f.scheduled_at, f.job_id))
        order by f.scheduled_at, f.job_id
        limit max_count;
        return;
    end if;
    return query
    select w.job_id, w.scheduled_at, w.standing
    from (
        (select p.job_id, p.scheduled_at, false as standing
         from pgtick.pending_executions p
         where case when p.attempt = 0 then 'PENDING' else 'RETRYING' end = any (statuses)
           and (of_user is null or p.user_id = of_user) and (of_task is null or p.task_key = of_task)
           and p.scheduled_at >= from_at and p.scheduled_at < until_at and p.job_id < newest_job
           and (with_error is null or strpos(lower(p.errors -> -1 ->> 'error'), with_error) > 0)
           and (op.action = 'cancel' or p.attempt = 0 and p.origin is null and p.scheduled_at <> op.at
                and exists (select from pgtick.jobs j where j.job_id = p.job_id and j.schedule_type <> 'CRON'))
         limit max_count)
        union all
        -- In the order in which reports lock them.
        (select r.job_id, r.scheduled_at, false
         from pgtick.running_executions r
         where op.action = 'cancel' and 'IN_PROGRESS' = any (statuses) and r.cancel_requested_at is null
           and (of_user is null or r.user_id = of_user) and (of_task is null or r.task_key = of_task)
           and r.scheduled_at >= from_at and r.scheduled_at < until_at and r.job_id < newest_job
           and (with_error is null or strpos(lower(r.errors -> -1 ->> 'error'), with_error) > 0)
         order by r.claim_id
         limit max_count)
        union all
        -- Single runs beyond the partitions made so far.
        (select s.job_id, s.next_run_at, true
         from pgtick.schedules s
         where s.expression is null and s.cancelled_at is null and 'PENDING' = any (statuses) and with_error is null
           and (of_user is null or s.user_id = of_user) and (of_task is null or s.task_key = of_task)
           and s.next_run_at >= from_at and s.next_run_at < until_at and s.job_id < newest_job
           and (op.action = 'cancel' or s.next_run_at <> op.at)
         limit max_count)
    ) as w
    limit max_count;
end $$;
comment on function pgtick.matching is 'Executions that an operation is still to do something to.';

create or replace function pgtick.operate(batch integer, only_id bigint default null) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    op pgtick.operations;
    found_one record;
    seen integer := 0;
    did integer := 0;
    refused integer := 0;
    now_is text;
    reason text;
    at timestamptz := clock_timestamp();
    is_last boolean;
begin
    select * into op from pgtick.operations o
    where o.finished_at is null and (only_id is null or o.operation_id = only_id)
    order by o.operation_id limit 1
    for update skip locked;
    if not found then
        return false;
    end if;
    perform set_config('pgtick.user_id', coalesce(op.user_id, ''), true);
    begin
        for found_one in select * from pgtick.matching(op, batch) loop
            seen := seen + 1;
            op.after_at := found_one.scheduled_at;
            op.after_id := found_one.job_id;
            -- What has moved on meanwhile, or is locked by somebody, does not keep the others from their turn.
            begin
                if op.action = 'cancel' and found_one.standing then
                    perform pgtick.cancel_job(found_one.job_id);
                elsif op.action = 'cancel' then
                    now_is := pgtick.stop_execution(found_one.job_id, found_one.scheduled_at);
                    if now_is in ('CANCELLED', 'IN_PROGRESS') is not true then
                        raise exception 'execution % is %', pgtick.execution_id(found_one.scheduled_at, found_one.job_id),
                            coalesce('over: ' || now_is, 'no more') using errcode = 'object_not_in_prerequisite_state';
                    end if;
                elsif op.action = 'rerun' then
                    perform pgtick.start_anew(pgtick.job_named(found_one.job_id), at + seen * interval '1 microsecond',
                        'retry of ' || pgtick.execution_id(found_one.scheduled_at, found_one.job_id));
                else
                    perform pgtick.reschedule(found_one.job_id, op.at);
                end if;
                did := did + 1;
            exception when others then
                if sqlstate like '57%' or sqlstate like '53%' or sqlstate like '08%' then
                    raise;
                end if;
                refused := refused + 1;
                reason := sqlerrm;
            end;
        end loop;
    exception when data_exception then
        -- Its filter makes no sense: put in by hand, it would be the oldest for ever.
        reason := sqlerrm;
    end;
    -- Of what waits, each batch finds what is left: when it could do nothing, there is nothing left to be done. Of those that
    -- were counted first, the rest had moved on before their batch came.
    is_last := seen < batch or (did = 0 and op.action <> 'rerun');
    update pgtick.operations o
    set done = o.done + did, refused = greatest(o.refused + refused, case when is_last then o.matched - o.done - did end),
        problem = coalesce(reason, o.problem), after_at = op.after_at, after_id = op.after_id,
        worked_at = clock_timestamp(), finished_at = case when is_last then clock_timestamp() end
    where o.operation_id = op.operation_id;
    if did > 0 and op.action = 'rerun' then
        perform pgtick.tell_due(at);
    end if;
    return true;
end $$;
comment on function pgtick.operate is 'Does one batch of the oldest operation that is not finished, or of one. Returns whether there was any.';

create or replace function pgtick.rerun(job_id uuid, scheduled_at timestamptz) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    job pgtick.jobs := pgtick.job_named(job_id);
    old_id text := pgtick.execution_id(scheduled_at, job_id);
    at timestamptz := clock_timestamp();
    made text;
begin
    if not exists (select from pgtick.finished_executions f where f.job_id = rerun.job_id and f.scheduled_at = rerun.scheduled_at) then
        raise exception 'execution_id: execution % is not over', old_id using errcode = 'object_not_in_prerequisite_state';
    end if;
    made := pgtick.start_anew(job, at, 'retry of ' || old_id);
    perform pgtick.audit('rerun', old_id, jsonb_build_object('execution_id', made));
    perform pgtick.tell_due(at);
    return made;
end $$;
comment on function pgtick.rerun is 'Runs an execution that is over once more, with the parameters its job has now. It stays as it is; returns the id of the new one.';
