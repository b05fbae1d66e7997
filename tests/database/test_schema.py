"""The schema as people and migrators meet it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.support.databases import Server, alembic, migrate


def test_alembic_finds_no_difference_with_partitions_present(
    owner_dsn: str, connection: psycopg.Connection[Any]
) -> None:
    assert connection.execute("select count(*) > 10 from pgtick.partitions").fetchone() == (True,)
    alembic(owner_dsn, "check")


def test_a_release_without_pauses_finds_no_task_paused(owner_dsn: str, connection: psycopg.Connection[Any]) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('t', 'x')")
    connection.execute("select pgtick.create_job('t'), pgtick.pause_task('t')")
    alembic(owner_dsn, "downgrade", "0001")
    alembic(owner_dsn, "upgrade", "head")
    rows = "select priority from pgtick.tasks union all select priority from pgtick.pending_executions"
    assert connection.execute(rows).fetchall() == [(2,), (2,)]


def test_downgrade_leaves_nothing_and_upgrade_works_again(owner_dsn: str, connection: psycopg.Connection[Any]) -> None:
    alembic(owner_dsn, "downgrade", "base")
    left = "select relname from pg_class where relnamespace = 'pgtick'::regnamespace and relkind in ('r', 'p', 'v')"
    assert connection.execute(left).fetchall() == [("alembic_version",)]
    alembic(owner_dsn, "upgrade", "head")
    connection.execute("select * from pgtick.executions")


def test_two_migrators_at_once_both_succeed(server: Server) -> None:
    with server.database() as empty, ThreadPoolExecutor(2) as pool:
        list(pool.map(migrate, [empty, empty]))
        with psycopg.connect(empty) as connection:
            assert connection.execute("select count(*) from pgtick.alembic_version").fetchone() == (1,)


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (
            "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, run_at, parameters)"
            " values (pgtick.uuid7(), 'u', 't', 'NOW', now(), '[]')",
            "jobs_parameters_is_an_object",
        ),
        (
            "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, run_at)"
            " values (pgtick.uuid7(), 'u', 't', 'DATE', 'infinity')",
            "jobs_run_at_is_sane",
        ),
        (
            "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, attempt)"
            " values (pgtick.uuid7(), now(), now(), 'u', 1, -1)",
            "pending_executions_attempt_is_sane",
        ),
        (
            "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
            " values (pgtick.uuid7(), 'infinity', now(), 'u', 1)",
            "pending_executions_times_are_sane",
        ),
        (
            "insert into pgtick.finished_executions"
            " (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at)"
            " values (pgtick.uuid7(), now(), 'u', 1, 'DONE', 1, now(), now())",
            "finished_executions_status_is_final",
        ),
    ],
)
def test_constraints_are_named_for_their_rule(
    connection: psycopg.Connection[Any], statement: str, constraint: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        connection.execute(statement)
    assert (caught.value.diag.constraint_name or "").endswith(constraint.removeprefix("pending_executions_")) or (
        caught.value.diag.constraint_name == constraint
    )


def test_executions_reads_with_identity_first_and_status_as_a_word(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.execute("select * from pgtick.executions")
    names = [column.name for column in cursor.description or ()]
    assert names[:5] == ["job_id", "scheduled_at", "task_id", "user_id", "status"]


def test_ids_are_uuid_version_7_and_carry_their_time(connection: psycopg.Connection[Any]) -> None:
    row = connection.execute(
        "select id, abs(extract(epoch from pgtick.uuid7_time(id) - clock_timestamp())) < 1,"
        " pgtick.uuid7_floor(now() - interval '1 minute') < id"
        " from pgtick.uuid7() as id"
    ).fetchone()
    assert row is not None
    assert row[0].version == 7
    assert row[1:] == (True, True)
