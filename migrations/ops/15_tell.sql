-- Wake-ups. A connection that listens and stays in a transaction lets the queue of notifications fill up, and in a full one
-- each NOTIFY fails, with the transaction that it is part of. Workers find by themselves, a little later, what they were not told.

create or replace function pgtick.tell(channel text, said text) returns boolean
language sql volatile
return case when pg_catalog.pg_notification_queue_usage() < 0.9 then pg_catalog.pg_notify(channel, said) is not null else false end;
comment on function pgtick.tell is 'NOTIFY, unless the queue of notifications is nearly full; returns whether it did.';

create or replace function pgtick.tell_due(at timestamptz) returns boolean
language sql volatile
return pgtick.tell('pgtick_due', (extract(epoch from at) * 1000000)::bigint::text);
comment on function pgtick.tell_due is 'Tells workers that something is due at that time; returns whether it did.';
