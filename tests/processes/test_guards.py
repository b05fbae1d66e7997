"""What will hurt soon is found, said once, with what to act on, and forgotten when it is gone."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from app.store.connections import connect
from tests.support.processes import Fleet
from tests.support.waiting import eventually


@pytest.fixture
def watched(fleet: Fleet) -> Fleet:
    fleet.start(guards_s=0.3, old_snapshot_s=1)
    fleet.start(guards_s=0.3, old_snapshot_s=1)
    return fleet


def finding(fleet: Fleet, kind: str) -> tuple[str, str]:
    query = "select subject, sentence from pgtick.findings where kind = %s"
    return eventually(lambda: fleet.connection.execute(query, [kind]).fetchone(), 30)  # type: ignore[return-value]


def gone(fleet: Fleet, kind: str) -> None:
    fleet.eventually("select not exists (select from pgtick.findings where kind = %s)", [kind])
    said = [line for worker in fleet.workers for line in worker.says("finding", kind=kind)]
    assert len(said) == 1, "once, by one of them"
    assert len([line for worker in fleet.workers for line in worker.says("finding_gone", kind=kind)]) == 1


def test_an_old_snapshot_is_named_with_its_pid(watched: Fleet) -> None:
    with connect(watched.dsn, application_name="report of a person") as person:
        pid = person.info.backend_pid
        with person.transaction():
            person.execute("set transaction isolation level repeatable read")
            person.execute("select 1")
            subject, sentence = finding(watched, "old_snapshot")
            assert subject == f"pid {pid}"
            assert "report of a person" in sentence
            assert f"pg_terminate_backend({pid})" in sentence
            watched.eventually("select seen_at > found_at + interval '1 s' from pgtick.findings")
    gone(watched, "old_snapshot")


def test_partitions_about_to_be_missing_are_named(watched: Fleet) -> None:
    with connect(watched.owner) as person:
        with person.transaction(force_rollback=True):
            # Whoever wants to make partitions waits for this row.
            person.execute("select from pgtick.partition_windows where parent = 'jobs' for update")
            watched.connection.execute(
                "update pgtick.partition_windows set until_at = date_trunc('hour', now()) + interval '2 h'"
                " where parent = 'finished_executions'"
            )
            subject, sentence = finding(watched, "partitions_missing")
            assert subject == "finished_executions"
            assert "ensure_partitions" in sentence
        gone(watched, "partitions_missing")


def test_late_executions_are_named_by_task(fleet: Fleet) -> None:
    fleet.start(concurrency=1, guards_s=0.3)
    for _ in range(4):
        fleet.post("nap", parameters={"seconds": 2})
    subject, sentence = finding(fleet, "late")
    assert subject == "task nap"
    assert "PGTICK_CONCURRENCY" in sentence
    gone(fleet, "late")


def test_a_forgotten_replication_slot_is_named(fleet: Fleet, connection: psycopg.Connection) -> None:
    from app.store import queries

    # 1 GiB of WAL is too much for a test: the limit is what is changed.
    statement = queries.findings.replace("1024 ^ 3", "0")
    assert statement != queries.findings
    name = f"forgotten_{fleet.value('select pg_backend_pid()')}"
    connection.execute("select pg_create_physical_replication_slot(%s, true)", [name])
    try:
        rows = connection.execute(statement, {"snapshot_age": timedelta(hours=1)}).fetchall()
        assert [(change, kind, subject) for change, kind, subject, _ in rows if name in subject] == [
            ("new", "replication_slot", f"slot {name}")
        ]
        (sentence,) = [row[3] for row in rows if name in row[2]]
        assert f"pg_drop_replication_slot('{name}')" in sentence
    finally:
        connection.execute("select pg_drop_replication_slot(%s)", [name])
