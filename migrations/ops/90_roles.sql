-- Who may do what, for those of the roles of migrations/roles.sql that exist. Last, so that it covers everything before.

create or replace function pgtick.grant_roles() returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    -- Functions that only look.
    looking constant text[] := array['execution_id', 'explain', 'in_words', 'is_live', 'lateness_bounds', 'lateness_quantile', 'next_runs', 'uuid7_floor', 'uuid7_time'];
    -- What people on call do, all that leaves an audit entry. It runs as its owner: they have no rights on the tables.
    acting constant text[] := array['create_job', 'cancel_execution', 'reschedule', 'ensure_partitions'] || array(
        select p.proname::text from pg_proc p where p.pronamespace = 'pgtick'::regnamespace and p.prosrc like '%pgtick.audit(%' and p.proname <> 'grant_roles');
    given text[] := array(select rolname from pg_roles where rolname in ('pgtick_app', 'pgtick_operator', 'pgtick_reader') order by 1);
    thing record;
    taker text;
begin
    revoke all on schema pgtick from public;
    revoke all on all functions in schema pgtick from public;
    for thing in
        select p.oid::regprocedure as signature from pg_proc p
        where p.pronamespace = 'pgtick'::regnamespace and p.prokind = 'f' and not p.prosecdef
          and (p.proname = any (acting) or p.proname in ('explain', 'next_runs'))
    loop
        execute format('alter function %s security definer', thing.signature);
    end loop;
    foreach taker in array given loop
        execute format('grant usage on schema pgtick to %I', taker);
        if taker = 'pgtick_app' then
            execute format('grant usage on all sequences in schema pgtick to %I', taker);
        end if;
        for thing in
            select p.oid::regprocedure as signature from pg_proc p
            where p.pronamespace = 'pgtick'::regnamespace and p.prokind = 'f'
              and (taker = 'pgtick_app' or p.proname = any (looking) or taker = 'pgtick_operator' and p.proname = any (acting))
              and p.proname <> 'grant_roles'
        loop
            execute format('grant execute on function %s to %I', thing.signature, taker);
        end loop;
        for thing in
            select c.relname as name, c.relkind = 'v' as is_view from pg_class c
            where c.relnamespace = 'pgtick'::regnamespace and c.relkind in ('r', 'p', 'v')
              and (not c.relispartition or taker = 'pgtick_app' and c.relname like 'pending\_executions\_%')
        loop
            if taker = 'pgtick_app' then
                execute format('grant select on pgtick.%I to %I', thing.name, taker);
                if thing.name = 'audit_log' then
                    execute format('grant insert on pgtick.%I to %I', thing.name, taker);
                elsif not thing.is_view and thing.name not in ('alembic_version', 'partition_windows') then
                    execute format('grant insert, update, delete on pgtick.%I to %I', thing.name, taker);
                end if;
            elsif thing.is_view or thing.name in ('tasks', 'workers', 'execution_stats', 'findings', 'partition_windows')
                or taker = 'pgtick_operator' and thing.name in ('jobs', 'schedules', 'audit_log', 'archives') then
                execute format('grant select on pgtick.%I to %I', thing.name, taker);
            end if;
        end loop;
    end loop;
    return given;
end $$;
comment on function pgtick.grant_roles is 'Grants what the roles of migrations/roles.sql may do to those that exist, and returns them. Runs at the end of each migration.';
select pgtick.grant_roles();
