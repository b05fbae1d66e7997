-- Identifiers: UUIDv7 job ids and the printed id of an execution.

create or replace function pgtick.uuid7(at timestamptz default clock_timestamp()) returns uuid
language sql volatile parallel safe
return encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send(floor(extract(epoch from at) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid;
comment on function pgtick.uuid7 is 'A new job id: UUIDv7 of that time (RFC 9562), so that ids sort by creation.';

create or replace function pgtick.uuid7_floor(at timestamptz) returns uuid
language sql stable parallel safe
return (lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;
comment on function pgtick.uuid7_floor is 'The smallest job id of that millisecond: the bound of a partition of jobs.';

create or replace function pgtick.uuid7_time(id uuid) returns timestamptz
language sql stable parallel safe
return to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0);
comment on function pgtick.uuid7_time is 'When a job id was made, to the millisecond.';

create or replace function pgtick.execution_id(scheduled_at timestamptz, job_id uuid) returns text
language sql stable parallel safe
return (extract(epoch from scheduled_at) * 1000000)::bigint || '-' || job_id;
comment on function pgtick.execution_id is 'The printed id of an execution: <scheduled_at in µs>-<job_id>.';
