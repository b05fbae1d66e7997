-- Making and dropping partitions. Each statement here gives up after a short wait for a lock, so that claims never queue
-- behind it for long; its caller (the janitor, or an API process that found its partition missing) tries again.

create or replace function pgtick.make_partition(parent text, from_at timestamptz, until_at timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    name text := parent || to_char(from_at at time zone 'UTC', '_YYYYMMDD_HH24MI');
    lower_bound text := case parent when 'jobs' then pgtick.uuid7_floor(from_at)::text else to_char(from_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') end;
    upper_bound text := case parent when 'jobs' then pgtick.uuid7_floor(until_at)::text else to_char(until_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') end;
    taker text;
    -- Rows leave pending partitions as fast as they come: vacuum by count, not by a share of a moving size.
    storage text := case parent when 'pending_executions'
        then 'with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0)' else '' end;
begin
    if exists (select from pg_inherits i where i.inhrelid = to_regclass(format('pgtick.%I', name))) then
        return;
    elsif to_regclass(format('pgtick.%I', name)) is null then
        -- LIKE and ATTACH take no lock on the parent that a long SELECT or an INSERT would block; CREATE … PARTITION OF does.
        execute format('create table pgtick.%I (like pgtick.%I including all) %s', name, parent, storage);
    end if;
    if parent = 'pending_executions' then
        -- Workers claim from the partition of the hour itself, so who may take rows out of the parent may here.
        for taker in
            select distinct a.grantee::regrole::text
            from pg_class c cross join lateral aclexplode(c.relacl) a
            where c.oid = 'pgtick.pending_executions'::regclass and a.privilege_type = 'DELETE' and a.grantee <> c.relowner and a.grantee <> 0
        loop
            execute format('grant select, update, delete on pgtick.%I to %s', name, taker);
        end loop;
    end if;
    execute format('alter table pgtick.%I attach partition pgtick.%I for values from (%L) to (%L)', parent, name, lower_bound, upper_bound);
end $$;

create or replace function pgtick.missing_partitions() returns table (parent text, partition text, from_at timestamptz, until_at timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
as $$
    select w.parent, hour.partition, hour.at, hour.at + w.step
    from pgtick.partition_windows w
    cross join lateral (
        select at, w.parent || to_char(at, '_YYYYMMDD_HH24MI') as partition from generate_series(w.from_at, w.until_at - w.step, w.step) as at
    ) as hour
    where not exists (select from pg_inherits i where i.inhrelid = to_regclass(format('pgtick.%I', hour.partition)))
    order by w.parent, hour.at
$$;
comment on function pgtick.missing_partitions is 'Partitions inside of partition_windows that are none: dropped or detached by hand.';

create or replace function pgtick.extend_partitions(parent text, from_at timestamptz, until_at timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    origin constant timestamptz := '2000-01-01 00:00Z';
    span pgtick.partition_windows;
    edge timestamptz;
    gone record;
    made integer := 0;
begin
    -- The row lock makes one maker wait for another.
    select * into strict span from pgtick.partition_windows w where w.parent = extend_partitions.parent for update;
    if span.until_at < extend_partitions.from_at - interval '7 days' then
        -- Nobody made partitions for long: begin again, without filling the hole.
        span.from_at := date_bin(span.step, extend_partitions.from_at, origin);
        span.until_at := span.from_at;
    elsif span.until_at < extend_partitions.from_at then
        -- Nor for days: those of now cannot wait for hundreds before them, which come back like missing ones.
        span.until_at := date_bin(span.step, extend_partitions.from_at, origin);
    end if;
    while span.until_at < extend_partitions.until_at loop
        edge := date_bin(span.step, span.until_at, origin) + span.step;
        perform pgtick.make_partition(parent, span.until_at, edge);
        span.until_at := edge;
        made := made + 1;
    end loop;
    while span.from_at > extend_partitions.from_at loop
        edge := date_bin(span.step, span.from_at - interval '1 microsecond', origin);
        perform pgtick.make_partition(parent, edge, span.from_at);
        span.from_at := edge;
        made := made + 1;
    end loop;
    -- What somebody has dropped or detached comes back: a day of it each time, what is nearest to now first. Where it
    -- cannot, that must not keep new ones from being made.
    for gone in
        select m.* from pgtick.missing_partitions() m where m.parent = span.parent
        order by abs(extract(epoch from m.from_at - now())) limit 24
    loop
        begin
            perform pgtick.make_partition(gone.parent, gone.from_at, gone.until_at);
            made := made + 1;
        exception when others then
            raise warning 'partition % is missing, and cannot be made: %', gone.partition, sqlerrm;
        end;
    end loop;
    update pgtick.partition_windows w set from_at = span.from_at, until_at = span.until_at
        where w.parent = span.parent and (w.from_at, w.until_at) is distinct from (span.from_at, span.until_at);
    return made;
end $$;

create or replace function pgtick.ensure_partitions(runway interval default '48 hours', since timestamptz default now() - interval '2 hours')
returns integer
language sql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
    select pgtick.extend_partitions('pending_executions', least(since, now() - interval '2 hours'), now() + runway)
         + pgtick.extend_partitions('finished_executions', least(since, now() - interval '2 hours'), now() + runway)
         + pgtick.extend_partitions('jobs', now() - interval '1 day', now() + greatest(runway, interval '2 days'))
         + pgtick.extend_partitions('execution_stats', now() - interval '1 day', now() + greatest(runway, interval '2 days'))
$$;
comment on function pgtick.ensure_partitions is 'Makes the missing partitions from since until now() + runway of every partitioned table; returns how many it made.';

create or replace function pgtick.kept_at(parent text, at timestamptz) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    -- Seconds become microseconds, so that different times stay different, and in order.
    select coalesce((
        select case
            when at < w.from_at
                then w.from_at + extract(epoch from greatest(at, '2000-01-01 00:00Z') - '2000-01-01 00:00Z'::timestamptz) * interval '1 microsecond'
            when at >= w.until_at then now()
            else at
        end
        from pgtick.partition_windows w
        where w.parent = kept_at.parent
    ), at)
$$;
comment on function pgtick.kept_at is
    'The time under which a table keeps something of that time: that time, or where its partition is gone already, one at the beginning of what is kept.';

drop view if exists pgtick.partitions;
create view pgtick.partitions as
select parent.relname::text as parent, child.relname::text as partition,
       case parent.relname when 'jobs' then pgtick.uuid7_time(bound[1]::uuid) else bound[1]::timestamptz end as from_at,
       case parent.relname when 'jobs' then pgtick.uuid7_time(bound[2]::uuid) else bound[2]::timestamptz end as until_at,
       greatest(child.reltuples, 0)::bigint as estimated_rows,
       pg_total_relation_size(child.oid) as bytes
from pg_inherits i
join pg_class parent on parent.oid = i.inhparent
join pg_class child on child.oid = i.inhrelid
cross join lateral (select regexp_match(pg_get_expr(child.relpartbound, child.oid), $re$FROM \('([^']+)'\) TO \('([^']+)'\)$re$)) b (bound)
where parent.relnamespace = 'pgtick'::regnamespace and parent.relkind = 'p';
comment on view pgtick.partitions is 'Every partition with its bounds, estimated rows and size in bytes.';

create or replace function pgtick.drop_partition(partition text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    old record;
    used boolean;
begin
    select p.* into strict old from pgtick.partitions p where p.partition = drop_partition.partition;
    if old.until_at > now() then
        raise exception 'partition % is not over before %', partition, old.until_at;
    end if;
    if old.parent = 'pending_executions' then
        -- Whatever still waits in an old hour is waiting, not history.
        execute format('select exists (select from pgtick.%I)', partition) into used;
        if used then
            return false;
        end if;
        execute format('lock table pgtick.%I in access exclusive mode', partition);
        execute format('select exists (select from pgtick.%I)', partition) into used;
        if used then
            return false;
        end if;
    end if;
    execute format('alter table pgtick.%I detach partition pgtick.%I', old.parent, partition);
    execute format('drop table pgtick.%I', partition);
    update pgtick.partition_windows w set from_at = least(greatest(w.from_at, old.until_at), w.until_at) where w.parent = old.parent;
    return true;
end $$;
comment on function pgtick.drop_partition is 'Drops one past partition; a pending one only when it is empty. Returns whether it was dropped.';
