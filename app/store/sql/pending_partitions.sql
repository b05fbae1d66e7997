-- The hours of pending_executions up to one of them, by time.
select c.relname::text
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'pgtick.pending_executions'::regclass and c.relname <= %s
order by 1
