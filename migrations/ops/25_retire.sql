-- Partitions past retention: taken out of their table first, in one short transaction, then read at leisure as a table of
-- their own, which nobody writes to any more, and dropped. pgtick.archives has a row for each until it is gone, and after.

create or replace function pgtick.past_name(partition text) returns text
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    -- The time makes it unique: for a very late row the partition may be made, and retired, a second time.
    select 'past_' || partition || to_char(clock_timestamp() at time zone 'UTC', '_YYYYMMDDHH24MISSUS')
$$;
comment on function pgtick.past_name is 'The name of the table that a partition becomes when it is detached.';

create or replace function pgtick.detach_partition(partition text) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    old record;
    past text := pgtick.past_name(partition);
begin
    select p.* into old from pgtick.partitions p where p.partition = detach_partition.partition;
    if not found then
        return null; -- another worker was first
    elsif old.parent <> 'finished_executions' then
        raise exception 'partition: % is not one of finished_executions', partition using errcode = 'invalid_parameter_value';
    elsif old.until_at > now() then
        raise exception 'partition: % is not over before %', partition, old.until_at using errcode = 'invalid_parameter_value';
    end if;
    execute format('alter table pgtick.finished_executions detach partition pgtick.%I', partition);
    execute format('alter table pgtick.%I rename to %I', partition, past);
    update pgtick.partition_windows w set from_at = least(greatest(w.from_at, old.until_at), w.until_at) where w.parent = old.parent;
    insert into pgtick.archives (name, parent, from_at, until_at) values (past, old.parent, old.from_at, old.until_at);
    return past;
end $$;
comment on function pgtick.detach_partition is 'Takes a past partition out of finished_executions and returns the name of the table it became; null when it was gone.';

create or replace function pgtick.retire_jobs(before timestamptz) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
    zero constant uuid := '00000000-0000-0000-0000-000000000000';
    day record;
    upto uuid;
    past text;
begin
    if before is null or before > now() - interval '1 day' then
        raise exception 'before: must be at least a day ago, not %', coalesce(before::text, 'null') using errcode = 'invalid_parameter_value';
    end if;
    -- One day at a time, the oldest, so that the parent is locked for a moment only.
    select p.* into day from pgtick.partitions p
    where p.parent = 'jobs' and p.partition <> 'jobs_standing' and p.until_at <= before
    order by p.from_at limit 1;
    if not found then
        return null;
    end if;
    upto := pgtick.uuid7_floor(day.until_at);
    past := pgtick.past_name(day.partition);
    lock table pgtick.jobs in access exclusive mode;
    perform from pg_inherits i where i.inhrelid = to_regclass(format('pgtick.%I', day.partition)) and i.inhparent = 'pgtick.jobs'::regclass;
    if not found then
        return null; -- another worker was first
    end if;
    execute format('alter table pgtick.jobs detach partition pgtick.%I', day.partition);
    execute format('alter table pgtick.%I rename to %I', day.partition, past);
    if to_regclass('pgtick.jobs_standing') is null then
        create table pgtick.jobs_standing (like pgtick.jobs including all);
    else
        alter table pgtick.jobs detach partition pgtick.jobs_standing;
    end if;
    -- What still stands, waits or runs goes on as before. Between its bounds, each of these is a short index scan.
    execute format($sql$
        with
        standing as (
            select s.job_id from pgtick.schedules s where s.job_id < $1 and s.job_id >= $2
            union select p.job_id from pgtick.pending_executions p where p.job_id < $1 and p.job_id >= $2
            union select r.job_id from pgtick.running_executions r where r.job_id < $1 and r.job_id >= $2
        ),
        moved as (
            delete from pgtick.%I j using standing where j.job_id = standing.job_id returning j.*
        )
        insert into pgtick.jobs_standing select * from moved
    $sql$, past) using upto, pgtick.uuid7_floor(day.from_at);
    execute format('alter table pgtick.jobs attach partition pgtick.jobs_standing for values from (%L) to (%L)', zero, upto);
    update pgtick.partition_windows w set from_at = least(greatest(w.from_at, day.until_at), w.until_at) where w.parent = 'jobs';
    insert into pgtick.archives (name, parent, from_at, until_at) values (past, 'jobs', day.from_at, day.until_at);
    return past;
end $$;
comment on function pgtick.retire_jobs is
    'Takes the oldest day of jobs that ended before that time out of the table, and returns the name of the table it became; null when there is none. Jobs that still stand, wait or run move to jobs_standing.';

create or replace function pgtick.sweep_standing(past text) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    swept bigint := 0;
begin
    perform from pgtick.archives a where a.name = past and a.parent = 'jobs' and a.written_at is null and a.dropped_at is null;
    if not found then
        raise exception 'past: % is no day of jobs that waits to be archived', past using errcode = 'invalid_parameter_value';
    end if;
    if to_regclass('pgtick.jobs_standing') is not null then
        execute format($sql$
            with gone as (
                delete from pgtick.jobs_standing j
                where not exists (select from pgtick.schedules s where s.job_id = j.job_id)
                  and not exists (select from pgtick.pending_executions p where p.job_id = j.job_id)
                  and not exists (select from pgtick.running_executions r where r.job_id = j.job_id)
                  and coalesce(j.updated_at, j.cancelled_at, j.created_at) < now() - interval '1 day'
                returning j.*
            )
            insert into pgtick.%I select * from gone
        $sql$, past);
        get diagnostics swept = row_count;
    end if;
    return swept;
end $$;
comment on function pgtick.sweep_standing is 'Moves jobs of jobs_standing that no longer stand into a detached day of jobs, to leave with it. Returns how many.';

create or replace function pgtick.claim_past(claimant text, lease interval default '5 minutes') returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    claimed text;
begin
    update pgtick.archives a set claimed_by = claimant, claimed_until = now() + lease
    where a.name = (select w.name from pgtick.archives w
                    where w.dropped_at is null and (w.claimed_until is null or w.claimed_until < now() or w.claimed_by = claimant)
                    order by w.name limit 1 for update skip locked)
    returning a.name into claimed;
    if claimed is not null and to_regclass(format('pgtick.%I', claimed)) is not null then
        execute format('grant select on pgtick.%I to %I', claimed, session_user);
    end if;
    return claimed;
end $$;
comment on function pgtick.claim_past is 'Claims the oldest detached partition that nobody works on, and lets the caller read it. Returns its name, or null.';

create or replace function pgtick.forget_keys(before timestamptz) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    forgotten bigint;
begin
    delete from pgtick.idempotency_keys k
    where k.created_at < before
      and not exists (
          -- Not only jobs are made once: an operation has a number.
          select from jsonb_array_elements_text(k.response -> 'job_ids') as made (id)
          join pgtick.jobs j on j.job_id = case when made.id like '________-____-____-____-____________' then made.id::uuid end
      );
    get diagnostics forgotten = row_count;
    return forgotten;
end $$;
comment on function pgtick.forget_keys is
    'Deletes idempotency keys from before that time whose jobs are no longer there: what comes with one again makes a new job. Returns how many.';

create or replace function pgtick.drop_past(past text, expected_rows bigint) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    found_rows bigint;
    old pgtick.archives;
begin
    select * into old from pgtick.archives a where a.name = past and a.dropped_at is null for update;
    if not found then
        return false;
    end if;
    if to_regclass(format('pgtick.%I', past)) is not null then
        if expected_rows is not null then
            execute format('select count(*) from pgtick.%I', past) into found_rows;
            if found_rows <> expected_rows then
                raise exception 'past: % has % rows, not the % that were archived', past, found_rows, expected_rows using errcode = 'data_exception';
            end if;
        end if;
        execute format('drop table pgtick.%I', past);
    end if;
    if old.parent = 'jobs' then
        perform pgtick.forget_keys(old.until_at);
    end if;
    update pgtick.archives a set dropped_at = now(), claimed_until = null where a.name = past;
    return true;
end $$;
comment on function pgtick.drop_past is 'Drops a detached partition if it has as many rows as were archived (null: without looking). Returns whether it was there.';
