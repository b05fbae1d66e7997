"""Workers on a database whose sessions begin with settings that somebody made for other programs."""

from __future__ import annotations

import psycopg

from tests.support import strange
from tests.support.pooler import running_pooler
from tests.support.processes import Fleet

NAMES = {"to": "東京 😀"}


def runs_everything(fleet: Fleet, dsn: str, sessions: dict[str, str] = strange.SETTINGS, **settings: str) -> None:
    with psycopg.connect(fleet.owner, autocommit=True) as owner:
        strange.make(owner, **sessions)
    tasks = "tests.support.tasks,tests.support.limited_tasks"
    worker = fleet.start(dsn, tasks=tasks, PGCLIENTENCODING="LATIN1", **settings)
    jobs = [fleet.post("noop", parameters=NAMES), fleet.post("quick"), *[fleet.post("narrow") for _ in range(5)]]
    recurring = fleet.post("quick", "* * * * * *")
    for job_id in jobs:
        fleet.until(job_id, "COMPLETED")
    query = "select count(*) > 3 from pgtick.finished_executions where job_id = %s and status = 'COMPLETED'"
    fleet.eventually(query, [recurring])
    for event in ("loop_failed", "listener_lost", "database_unavailable", "lease_keeper_died"):
        assert not worker.says(event)


def test_they_make_no_difference(fleet: Fleet) -> None:
    runs_everything(fleet, fleet.dsn)


def test_nor_do_limits_for_transactions(fleet: Fleet) -> None:
    with psycopg.connect(fleet.owner, autocommit=True) as owner:
        strange.make(owner, idle_in_transaction_session_timeout="5ms")
        strange.limit_transactions(owner)
    runs_everything(fleet, fleet.dsn)


def test_nor_do_they_behind_a_pooler(fleet: Fleet) -> None:
    # The pooler's own sessions are idle; one that ends by this limit just as it is handed out fails whoever gets it.
    sessions = {name: value for name, value in strange.SETTINGS.items() if name != "idle_session_timeout"}
    with running_pooler(fleet.dsn) as through:
        runs_everything(fleet, through, sessions, listen_database_url=fleet.dsn)
