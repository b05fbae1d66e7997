"""What on-call reads of partitions that somebody dropped or detached by hand, and of executions that wait."""

from __future__ import annotations

from typing import Any

import psycopg

from app.settings import Settings
from app.store import queries
from tests.support.working import Bench
from workers.execution import Completed
from workers.guards import wanted

Connection = psycopg.Connection[Any]


def of_now(connection: Connection, parent: str) -> str:
    """The partition of this moment."""
    query = "select partition from pgtick.partitions where parent = %s and from_at <= now() and until_at > now()"
    row = connection.execute(query, [parent]).fetchone()
    assert row is not None
    return str(row[0])


def findings(connection: Connection) -> dict[str, str]:
    connection.execute(queries.findings, wanted(Settings(database_url="postgresql://")))
    return dict(connection.execute("select subject, sentence from pgtick.findings").fetchall())


def test_the_planner_and_reports_bring_hours_back_that_were_dropped(bench: Bench, connection: Connection) -> None:
    row = connection.execute("select pgtick.create_job('noop', '* * * * * *')").fetchone()
    assert row is not None
    for parent in ("pending_executions", "finished_executions"):
        connection.execute(f"drop table pgtick.{of_now(connection, parent)}")
    bench.plan()
    bench.clock.time += 2
    executions = bench.claim()
    assert executions
    connection.execute(f"drop table pgtick.{of_now(connection, 'finished_executions')}")
    bench.report(*((execution, Completed()) for execution in executions))
    done = connection.execute("select count(*) from pgtick.finished_executions where status = 'COMPLETED'").fetchone()
    assert done == (len(executions),)


def test_a_post_after_days_without_anybody_makes_what_it_needs_and_workers_the_rest(connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('noop', 'x')")
    for (partition,) in connection.execute("select partition from pgtick.partitions").fetchall():
        connection.execute(f"drop table pgtick.{partition}")
    connection.execute(
        "update pgtick.partition_windows set from_at = date_bin(step, now() - interval '3 days', '2000-01-01 00:00Z'),"
        " until_at = date_bin(step, now() - interval '3 days', '2000-01-01 00:00Z')"
    )
    connection.execute("select pgtick.create_job('noop')")
    made = connection.execute("select count(*) from pgtick.partitions").fetchone()
    assert made is not None
    assert made[0] < 40, "hundreds would run into the time limit of a request"
    rounds = 0
    while connection.execute("select pgtick.ensure_partitions()").fetchone() != (0,):
        rounds += 1
    assert rounds < 6
    assert connection.execute("select count(*) from pgtick.missing_partitions()").fetchone() == (0,)


def test_an_hour_that_was_detached_comes_back_with_what_is_in_it(bench: Bench, connection: Connection) -> None:
    connection.execute("select pgtick.create_job('noop')")
    hour = of_now(connection, "pending_executions")
    connection.execute(f"alter table pgtick.pending_executions detach partition pgtick.{hour}")
    assert bench.claim() == []
    assert hour in findings(connection)
    connection.execute("select pgtick.ensure_partitions()")
    assert len(bench.claim()) == 1
    assert hour not in findings(connection)


def test_an_hour_that_cannot_come_back_is_named_and_keeps_none_from_being_made(connection: Connection) -> None:
    hour = of_now(connection, "finished_executions")
    connection.execute(f"alter table pgtick.finished_executions detach partition pgtick.{hour}")
    connection.execute(f"alter table pgtick.{hour} drop column result")
    made = connection.execute("select pgtick.ensure_partitions('60 hours')").fetchone()
    assert made is not None
    assert made[0] > 60
    assert "was dropped or detached by hand" in findings(connection)[hour]


def test_executions_of_a_task_whose_row_was_deleted_are_named(bench: Bench, connection: Connection) -> None:
    connection.execute("select pgtick.create_job('noop')")
    connection.execute("update pgtick.pending_executions set due_at = now() - interval '3 s'")
    connection.execute("delete from pgtick.tasks")
    assert "no live worker knows that task" in findings(connection)["task #1"]


def test_what_a_limit_or_a_run_of_its_job_holds_back_is_not_late(bench: Bench, connection: Connection) -> None:
    for priority in (6, -2):
        connection.execute("select pgtick.create_job('noop')")
        connection.execute("update pgtick.pending_executions set priority = %s where priority = 2", [priority])
    connection.execute("update pgtick.pending_executions set due_at = now() - interval '1 minute'")
    assert findings(connection) == {}
    connection.execute("update pgtick.pending_executions set priority = 2")
    assert set(findings(connection)) == {"task noop"}
