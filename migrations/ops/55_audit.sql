-- Who did what by hand.

create or replace function pgtick.audit(action text, subject text, details jsonb default '{}') returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    insert into pgtick.audit_log (action, subject, user_id, details)
    values (action, subject, nullif(current_setting('pgtick.user_id', true), ''), coalesce(details, '{}'))
$$;
comment on function pgtick.audit is
    'Writes one entry of pgtick.audit_log. A program that acts for its own users names them first: set local pgtick.user_id = ''…''.';
