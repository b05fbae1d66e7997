"""Workers and API behind a real PgBouncer: in transaction mode, where a session lasts no longer than a transaction."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from app.store.connections import connect
from tests.support.databases import CHECKOUT, Server
from tests.support.pooler import running_pooler
from tests.support.processes import Fleet, Served, Worker, serving
from tests.support.waiting import eventually

PROMISE = timedelta(seconds=2)
OWN = ["application_name", "client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings"]
"""Settings that PgBouncer keeps for each of its clients."""
SET_HERE = """
    select pg_backend_pid(),
           string_agg(name || ' = ' || setting, ', ') filter (where source = 'session' and name <> all (%s))
    from pg_settings
"""


@pytest.fixture
def pooled(dsn: str) -> Iterator[str]:
    """The test's database as it is reached through PgBouncer."""
    with running_pooler(dsn) as through:
        yield through


def nothing_failed(*workers: Worker) -> None:
    for worker in workers:
        for event in ("loop_failed", "database_unavailable", "report_unstorable", "lease_keeper_died"):
            assert not worker.says(event)


def posted(fleet: Fleet, api: Served, count: int) -> list[timedelta]:
    """How late each of some jobs started, each posted when the one before was done."""
    late = []
    for n in range(count):
        status, _, answer = api.call("POST", "/jobs", {"task_id": "quick", "parameters": {"n": n}})
        assert status == 201, answer
        late.append(fleet.until(answer["job_id"], "COMPLETED")["lateness"])
    return late


def posted_at_once(api: Served, count: int) -> None:
    """As many clients as make connections change hands, and wake-ups go together."""
    jobs = [{"task_id": "quick", "parameters": {"n": n}} for n in range(count)]
    with ThreadPoolExecutor(8) as clients:
        answers = clients.map(lambda job: api.call("POST", "/jobs", job), jobs)
        assert {status for status, _, _ in answers} == {201}


def test_with_a_direct_address_to_listen_on_workers_are_woken(fleet: Fleet, pooled: str) -> None:
    # Who polls sees what comes after a claim a second later.
    slow = {"poll_s": 1, "claim_ahead_s": 4, "lease_s": 10}
    worker = fleet.start(pooled, listen_database_url=fleet.dsn, **slow)
    with serving(pooled) as api:
        late = posted(fleet, api, 25)
        posted_at_once(api, 200)
        jobs = [{"task_id": "quick", "parameters": {"n": n}} for n in range(300)]
        assert api.call("POST", "/jobs/batch", jobs)[0] == 201
    fleet.eventually("select count(*) = 525 from pgtick.finished_executions where status = 'COMPLETED'")
    assert max(late) < PROMISE
    assert sorted(late)[len(late) // 2] < timedelta(seconds=0.5)
    assert not worker.says("listener_lost")
    nothing_failed(worker)


def test_without_one_that_is_said_once_and_jobs_are_found_by_polling(fleet: Fleet, pooled: str) -> None:
    workers = [fleet.start(pooled, LISTEN=""), fleet.start(pooled)]
    for worker in workers:
        (said,) = eventually(lambda worker=worker: worker.says("listener_lost"))  # type: ignore[misc]
        assert "PGTICK_LISTEN_DATABASE_URL" in said
    with serving(pooled) as api:
        assert max(posted(fleet, api, 15)) < PROMISE
    recurring = fleet.post("quick", "* * * * * *")
    fleet.eventually("select count(*) > 2 from pgtick.finished_executions where job_id = %s", [recurring])
    assert fleet.value("select max(lateness) from pgtick.executions") < PROMISE
    assert all(len(worker.says("listener_lost")) == 1 for worker in workers)
    nothing_failed(*workers)


def test_in_session_mode_a_worker_listens_through_it(fleet: Fleet) -> None:
    with running_pooler(fleet.dsn, "session") as through:
        worker = fleet.start(through, poll_s=1, claim_ahead_s=4, lease_s=10)
        late = []
        for _ in range(7):
            late.append(fleet.until(fleet.post("quick"), "COMPLETED")["lateness"])
        assert sorted(late)[len(late) // 2] < timedelta(seconds=0.5)
        assert not worker.says("listener_lost")
        nothing_failed(worker)
        worker.terminate()
        assert worker.wait() == 0


def test_what_is_set_for_one_statement_does_not_stay_for_others(fleet: Fleet, pooled: str) -> None:
    """A commit that waits for no disk, in a session that somebody else has next, would lose an acknowledged job."""
    worker = fleet.start(pooled)
    fleet.post("quick", "* * * * * *")
    with serving(pooled) as api:
        posted_at_once(api, 200)
        assert api.call("GET", "/executions")[0] == 200
        worker.kill()  # what its lease keeper says then is said through the pooler, too
        eventually(lambda: worker.says("worker_died"))
        query = "select count(*) from pg_stat_activity where datname = current_database() and usename = %s"
        sessions = fleet.value(query, [conninfo_to_dict(pooled)["user"]])
        with contextlib.ExitStack() as stack:
            seen: dict[int, Any] = {}
            for _ in range(sessions):
                connection = stack.enter_context(connect(pooled))
                stack.enter_context(connection.transaction())  # keeps its session from the next one
                pid, found = connection.execute(SET_HERE, [OWN]).fetchone()  # type: ignore[misc]
                seen[pid] = found
            assert len(seen) == sessions > 1
            assert set(seen.values()) == {None}


def test_rows_that_a_person_has_locked_hold_nobody_else_up(fleet: Fleet, pooled: str) -> None:
    worker = fleet.start(pooled, listen_database_url=fleet.dsn, lease_s=30)
    held = fleet.post("nap", parameters={"seconds": 1})
    fleet.until_started(held)
    with connect(fleet.owner) as person, person.transaction():
        person.execute("select from pgtick.running_executions where job_id = %s for update", [held])
        eventually(lambda: worker.says("reports_held"))
        fleet.until(fleet.post("nap"), "COMPLETED")
    fleet.until(held, "COMPLETED")


def test_migrations_and_checks_go_through_it(server: Server) -> None:
    with server.database() as empty, running_pooler(empty) as through:
        for verb in ("migrate", "migrate", "check"):
            done = subprocess.run(
                [Path(sys.executable).with_name("pgtick"), verb],
                cwd=CHECKOUT,
                env=os.environ | {"DATABASE_URL": through},
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            assert done.returncode == 0, done.stdout
