"""What each role may do, and may not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.support import roles
from tests.support.databases import Server

Connection = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def granted(server: Server, connection: Connection) -> None:
    roles.make(server.admin)
    assert connection.execute("select pgtick.grant_roles()").fetchone() == (
        ["pgtick_app", "pgtick_operator", "pgtick_reader"],
    )
    connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'mail:send')")
    connection.execute("select pgtick.create_job('send_email', '2030-01-01T00:00:00Z')")


@contextmanager
def login(dsn: str, role: str) -> Iterator[Connection]:
    with psycopg.connect(roles.address(dsn, role), autocommit=True) as connection:
        yield connection


def refused(connection: Connection, statement: sql.Composable | str) -> bool:
    try:
        connection.execute(statement)  # type: ignore[arg-type]
    except psycopg.errors.InsufficientPrivilege:
        return True
    return False


def names(connection: Connection, kinds: str) -> list[str]:
    found = connection.execute(
        "select relname from pg_class where relnamespace = 'pgtick'::regnamespace and relkind = any (%s)"
        " and not relispartition order by 1",
        [list(kinds)],
    )
    return [name for (name,) in found.fetchall()]


def writes(connection: Connection, table: str) -> list[sql.Composed]:
    column = connection.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and attidentity = ''",
        [f"pgtick.{table}"],
    ).fetchone()
    assert column is not None
    parts = {"table": sql.Identifier("pgtick", table), "column": sql.Identifier(column[0])}
    return [
        sql.SQL(statement).format(**parts)
        for statement in (
            "insert into {table} default values",
            "update {table} set {column} = {column}",
            "delete from {table}",
            "truncate {table}",
            "drop table {table}",
            "alter table {table} add column extra integer",
        )
    ]


@pytest.mark.parametrize("role", ["reader", "operator"])
def test_people_cannot_write_any_table(owner_dsn: str, connection: Connection, role: str) -> None:
    with login(owner_dsn, role) as person:
        allowed = [
            statement.as_string()
            for table in names(connection, "rp")
            for statement in writes(connection, table)
            if not refused(person, statement)
        ]
        assert allowed == []
        assert refused(person, "create table pgtick.mine (i integer)")


def test_a_reader_sees_every_view_and_no_parameters_or_secrets(owner_dsn: str, connection: Connection) -> None:
    with login(owner_dsn, "reader") as reader:
        for view in names(connection, "v"):
            reader.execute(sql.SQL("select * from pgtick.{} limit 1").format(sql.Identifier(view)))
        for table in ("jobs", "api_tokens", "users", "idempotency_keys", "audit_log"):
            assert refused(reader, f"select * from pgtick.{table}"), table
        row = reader.execute("select pgtick.explain(job_id::text) from pgtick.executions").fetchone()
        assert row is not None
        assert row[0].startswith("It is planned for 2030-01-01")
        assert reader.execute("select count(*) from pgtick.next_runs()").fetchone() == (1,)


def test_a_reader_can_call_nothing_that_changes_anything(owner_dsn: str, connection: Connection) -> None:
    with login(owner_dsn, "reader") as reader:
        callable_ = reader.execute(
            "select proname, provolatile from pg_proc where pronamespace = 'pgtick'::regnamespace"
            " and has_function_privilege(oid, 'execute') and provolatile = 'v'"
        ).fetchall()
        assert callable_ == []
        assert refused(reader, "select pgtick.cancel_job(gen_random_uuid())")


def test_an_operator_acts_through_functions_and_is_on_record(owner_dsn: str, connection: Connection) -> None:
    with login(owner_dsn, "operator") as operator:
        created = operator.execute("select pgtick.create_job('send_email', '0 10 * * *')").fetchone()
        assert created is not None
        operator.execute("select pgtick.pause_job(%s, 'holidays')", created)
        operator.execute("select pgtick.resume_job(%s)", created)
        operator.execute("select pgtick.run_now(%s)", created)
        operator.execute("select pgtick.retry_failed()")
        operator.execute("select pgtick.cancel_job(%s)", created)
        assert operator.execute("select distinct db_user from pgtick.audit_log").fetchall() == [
            (roles.login("operator"),)
        ]
        assert refused(operator, "select pgtick.drop_partition('jobs_20200101_0000')")
        assert refused(operator, "select pgtick.audit('forged', 'entry')")


def test_an_operator_may_call_whatever_leaves_an_audit_entry(connection: Connection) -> None:
    missing = connection.execute(
        "select proname from pg_proc where pronamespace = 'pgtick'::regnamespace and prosrc like '%pgtick.audit(%'"
        " and proname <> 'grant_roles'"
        " and not (prosecdef and has_function_privilege('pgtick_operator', oid, 'execute'))"
    ).fetchall()
    assert missing == []


def test_the_app_cannot_do_ddl_and_makes_its_partitions_through_a_function(
    owner_dsn: str, connection: Connection
) -> None:
    with login(owner_dsn, "app") as app:
        for table in names(connection, "rp"):
            *_, truncate, drop, alter = writes(connection, table)
            assert all(refused(app, statement) for statement in (truncate, drop, alter)), table
        for statement in (
            "create table pgtick.mine (i integer)",
            "create schema mine",
            "create function pgtick.mine() returns integer language sql return 1",
            "create or replace view pgtick.late as select 1",
            "update pgtick.audit_log set action = 'nothing'",
            "delete from pgtick.audit_log",
            "update pgtick.partition_windows set until_at = now()",
            "delete from pgtick.alembic_version",
            "select pgtick.grant_roles()",
        ):
            assert refused(app, statement), statement
        app.execute("select nextval(pg_get_serial_sequence('pgtick.api_tokens', 'token_id'))")
        before = connection.execute("select count(*) from pgtick.partitions").fetchone()
        assert app.execute("select pgtick.ensure_partitions('72 hours') > 0").fetchone() == (True,)
        assert connection.execute("select count(*) from pgtick.partitions").fetchone() != before


def test_nobody_else_gets_in(owner_dsn: str, connection: Connection) -> None:
    connection.execute("drop role if exists pgtick_test_stranger")
    connection.execute(f"create role pgtick_test_stranger login password '{roles.PASSWORD}'")
    try:
        with login(owner_dsn, "stranger") as stranger:
            assert refused(stranger, "select * from pgtick.overview")
            assert refused(stranger, "select pgtick.explain('x')")
    finally:
        connection.execute("drop role pgtick_test_stranger")


def test_workers_may_claim_from_every_hour_itself_and_readers_may_not(connection: Connection) -> None:
    connection.execute("select pgtick.ensure_partitions(interval '60 hours')")  # some that no migration has seen
    rights = connection.execute(
        "select has_table_privilege(role, inhrelid, 'select')"
        "   and has_table_privilege(role, inhrelid, 'update') and has_table_privilege(role, inhrelid, 'delete')"
        " from pg_inherits, unnest('{pgtick_app,pgtick_reader,pgtick_operator}'::text[]) with ordinality as r (role, n)"
        " where inhparent = 'pgtick.pending_executions'::regclass order by n"
    ).fetchall()
    hours = len(rights) // 3
    assert hours > 60
    assert rights == [(True,)] * hours + [(False,)] * (2 * hours)
