"""What will hurt soon is found, said once, with what to act on, and forgotten when it is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.embedded.cluster import Cluster
from app.store.connections import connect
from tests.bench.load import producing
from tests.support.databases import migrate
from tests.support.processes import Fleet, serving
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


READ = "select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = 'pgtick' and relname ~ '^pending_exec'"
"""Index entries of pending executions that were looked at, dead ones included; up to a second old."""
NAMED = "select exists (select from pgtick.findings where subject = %s and sentence like %s)"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ten_minutes_into_an_old_snapshot_two_thousand_jobs_a_second_start_on_time(fleet: Fleet) -> None:
    rate, seconds = 2000, 20
    settings = {"TASKS": "", "PGTICK_TASKS": "tests.bench.tasks", "guards_s": 3, "old_snapshot_s": 5}
    fleet.value("select pgtick.ensure_partitions(since => now() - interval '1 h')")
    workers = [fleet.start(**settings), fleet.start(**settings)]
    fleet.until(fleet.post("bench"), "COMPLETED")
    with connect(fleet.owner, application_name="report of a person") as person, person.transaction():
        pid = person.info.backend_pid
        person.execute("set transaction isolation level repeatable read")
        person.execute("select 1")
        with fleet.connection.transaction():
            # What is left of ten minutes of as many jobs a second.
            fleet.backlog(600 * rate, apart_s=1 / rate)
            fleet.connection.execute("delete from pgtick.pending_executions where due_at < now()")
        before = fleet.value(READ)
        with producing(fleet.owner, rate, seconds):
            fleet.eventually(NAMED, [f"pid {pid}", f"%pg_terminate_backend({pid})%"])
            done = "select count(*) = %s from pgtick.finished_executions where status = 'COMPLETED'"
            fleet.eventually(done, [rate * seconds + 1], timeout=120)
        assert person.execute("select count(*) from pgtick.finished_executions").fetchone() == (1,), "the old snapshot"
        read = fleet.value(READ) - before
    query = "select max(lateness), bool_or(started_at < scheduled_at) from pgtick.executions"
    late, early = fleet.connection.execute(query).fetchone()  # type: ignore[misc]
    assert late < timedelta(seconds=2)
    assert not early
    assert read < 50 * 1_200_000, "what is dead is not looked at in every claim"
    assert not any(worker.says("lease_lost") for worker in workers)
    fleet.eventually(f"select not ({NAMED})", [f"pid {pid}", "%"])


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


@pytest.fixture
def short_queue(tmp_path: Path) -> Iterator[Fleet]:
    """On a server of its own, whose queue of notifications is short: it belongs to the whole server."""
    cluster = Cluster.temporary(settings={"max_notify_queue_pages": "64"})
    try:
        if version(cluster) < 17:
            pytest.skip("before PostgreSQL 17 the queue of notifications is always of 8 GB")
        cluster.start()
        migrate(cluster.dsn())
        fleet = Fleet(cluster.dsn(), tmp_path)
        yield fleet
        fleet.close()
    finally:
        cluster.destroy()


def version(cluster: Cluster) -> int:
    match = re.search(r"\d+", cluster.run("postgres", "--version"))
    assert match is not None
    return int(match.group())


def test_a_session_that_lets_the_queue_of_notifications_fill_is_named(short_queue: Fleet) -> None:
    fleet = short_queue
    fleet.start(guards_s=0.3)
    fleet.start(guards_s=0.3)
    with connect(fleet.dsn, application_name="program of a person") as person, connect(fleet.dsn) as teller:
        pid = person.info.backend_pid
        person.execute("listen news")
        with person.transaction():
            person.execute("select 1")
            tell(teller, 20)
            subject, sentence = finding(fleet, "notify_queue")
            assert subject == "notify queue"
            assert "program of a person" in sentence
            assert f"pg_terminate_backend({pid})" in sentence
        gone(fleet, "notify_queue")


def test_in_a_full_queue_of_notifications_jobs_are_posted_started_and_cancelled_all_the_same(
    short_queue: Fleet,
) -> None:
    fleet = short_queue
    workers = [fleet.start(), fleet.start()]
    with connect(fleet.dsn) as person, connect(fleet.dsn) as teller:
        person.execute("listen news")
        with person.transaction(), serving(fleet.dsn) as api:
            person.execute("select 1")
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                tell(teller, 100)
            posted = []
            for _ in range(8):
                posted.append(fleet.post("quick"))
                status, _, answer = api.call("POST", "/jobs", {"task_id": "quick"})
                assert status == 201, answer
                posted.append(answer["job_id"])
            for job in posted:
                assert fleet.until(job, "COMPLETED")["lateness"] < timedelta(seconds=2)
            long = fleet.post("nap", parameters={"seconds": 60})
            fleet.until_started(long)
            assert api.call("POST", f"/executions/{fleet.execution(long)['execution_id']}/cancel")[0] < 300
            fleet.until(long, "CANCELLED")
            echo = "select min(state_change) from pg_stat_activity where application_name = 'pgtick listener'"
            fleet.eventually(f"select ({echo}) > %s", [fleet.value("select clock_timestamp()")])
        fleet.until(fleet.post("quick"), "COMPLETED")
    for worker in workers:
        assert not worker.says("loop_failed")
        assert not worker.says("listener_lost")


def tell(connection: psycopg.Connection[Any], count: int) -> None:
    for number in range(count):
        connection.execute("select pg_notify('news', %s || repeat('x', 7900))", [str(number)])
