-- The roles of pgtick, one for each kind of access. Run once per server, by a role that may create roles:
--
--     psql "$ADMIN_URL" -f migrations/roles.sql
--
-- They are groups without a login; give your own logins membership in them:
--
--     create role pgtick_migrate login password '…' in role pgtick_owner;
--     alter role pgtick_migrate set role = pgtick_owner;              -- so that pgtick_owner owns what it makes
--     grant create on database … to pgtick_owner;                     -- for the schema, once
--     create role pgtick_api login password '…' in role pgtick_app;   -- DATABASE_URL of API and workers
--     create role ann login password '…' in role pgtick_operator;
--     create role grafana login password '…' in role pgtick_reader;
--
-- What each may do is granted by pgtick.grant_roles() at the end of every migration (migrations/ops/90_roles.sql), to
-- those of the roles that exist then. Without any of them, everything works as the one role that migrated.

do $$
declare
    name text;
begin
    foreach name in array array['pgtick_owner', 'pgtick_app', 'pgtick_operator', 'pgtick_reader'] loop
        if not exists (select from pg_roles where rolname = name) then
            execute format('create role %I nologin', name);
        end if;
    end loop;
end $$;

-- Migrations, and nothing else: owns schema, tables and functions. API and workers never log in as this; the partitions
-- they need are made and dropped by functions that run as their owner.
comment on role pgtick_owner is 'pgtick: owns the schema, runs migrations';

-- API and workers: read and write rows, no DDL. To warn of transactions of other roles that hold back VACUUM, they must
-- see them.
comment on role pgtick_app is 'pgtick: API and workers; rows, no DDL';
grant pg_read_all_stats to pgtick_app;

-- People on call: every view, jobs with their parameters, and the functions that change things, each with an entry in
-- pgtick.audit_log. No table can be written directly.
comment on role pgtick_operator is 'pgtick: people on call; views and functions';

-- Dashboards and the curious: the views, without parameters of jobs. Can change nothing.
comment on role pgtick_reader is 'pgtick: views only';
grant pgtick_reader to pgtick_operator;
