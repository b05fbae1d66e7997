"""Limits of tasks hold for all workers together, whatever happens to them."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from tests.support.processes import Fleet, Worker

pytestmark = pytest.mark.slow

MODULE = "tests.support.limited_tasks"
EXECUTIONS = int(os.environ.get("PGTICK_TEST_LIMITED", "1500"))
KEYS = max(5, EXECUTIONS // 50)


def start(fleet: Fleet, count: int, **settings: Any) -> list[Worker]:
    """So many workers, started at the same time."""
    return [worker.ready() for worker in [fleet.launch(tasks=MODULE, **settings) for _ in range(count)]]


def most_at_once(entries: list[dict[str, Any]], key: str | None = None) -> int:
    """How many of these ran together at some moment, by their ledger; all those with one value of `key`."""
    marks: dict[Any, list[tuple[float, int]]] = {}
    for entry in entries:
        if entry["event"] in ("started", "ended", "stopped"):
            step = 1 if entry["event"] == "started" else -1
            marks.setdefault(entry.get(key or ""), []).append((entry["at"], step))
    return max(max(itertools.accumulate(step for _, step in sorted(each))) for each in marks.values())


def test_a_limit_for_a_key_is_never_exceeded_by_four_workers(fleet: Fleet) -> None:
    start(fleet, 4, concurrency=12)  # less than there is room for, so that each has its share
    fleet.value(
        "select count(pgtick.create_job('keyed', 'now', jsonb_build_object('customer',"
        " jsonb_build_object('id', n %% %s)))) from generate_series(1, %s) as n",
        [KEYS, EXECUTIONS],
    )
    fleet.eventually(
        "select count(*) = %s from pgtick.finished_executions where status = 'COMPLETED'", [EXECUTIONS], 120
    )
    entries = fleet.ledger.entries(task_id="keyed")
    assert len(entries) == 2 * EXECUTIONS
    assert most_at_once(entries, "key") <= 3
    assert most_at_once(entries) > 6, "different keys do not wait for each other"
    assert fleet.value("select count(distinct worker_id) from pgtick.finished_executions") == 4


def test_a_limit_overall_holds_also_for_retries_and_when_a_worker_dies(fleet: Fleet) -> None:
    workers = start(fleet, 2)
    fleet.value(
        "select count(pgtick.create_job('narrow', 'now', jsonb_build_object('fail', n % 10 = 0)))"
        " from generate_series(1, 60) as n"
    )
    fleet.eventually("select count(*) > 10 from pgtick.finished_executions")
    workers[0].kill()
    survivor = workers[1].worker_id()
    fleet.eventually("select count(*) = 60 from pgtick.finished_executions where status = 'COMPLETED'", timeout=40)
    entries = [e for e in fleet.ledger.entries(task_id="narrow") if e["pid"] == workers[1].pid]
    assert most_at_once(entries) <= 2
    assert fleet.value("select max(n) from (select count(*) n from pgtick.running_executions) r") == 0
    assert fleet.value("select count(*) > 0 from pgtick.finished_executions where worker_id = %s", [survivor])


def test_starts_are_no_more_than_the_rate(fleet: Fleet) -> None:
    start(fleet, 2)
    fleet.value("select count(pgtick.create_job('paced')) from generate_series(1, 60) as n")
    fleet.eventually("select count(*) = 60 from pgtick.finished_executions where status = 'COMPLETED'")
    starts = sorted(entry["at"] for entry in fleet.ledger.starts())
    for n, first in enumerate(starts):
        within = sum(first <= at < first + 1 for at in starts[n:])
        assert within <= 20 * 1.1 + 3, "a second's worth, what may come together, and the time from claim to start"
    assert starts[-1] - starts[0] < 60 / 20 * 1.5, "and not much fewer"


def test_a_limit_that_is_gone_holds_nothing_back(fleet: Fleet) -> None:
    first = fleet.start(tasks=MODULE)
    first.terminate()
    first.wait()
    job = fleet.post("narrow")
    assert fleet.value("select priority from pgtick.pending_executions") == 6
    fleet.connection.execute(
        "update pgtick.tasks set max_concurrent = null, priority = 2 where task_id = 'narrow';"
        " select pgtick.apply_limits(array(select task_key from pgtick.tasks))"
    )
    assert fleet.value("select priority from pgtick.pending_executions") == 2
    fleet.connection.execute(
        "update pgtick.tasks set max_concurrent = 1, priority = 6 where task_id = 'narrow';"
        " select pgtick.apply_limits(array(select task_key from pgtick.tasks))"
    )
    assert fleet.value("select priority from pgtick.pending_executions") == 6
    fleet.start(tasks=MODULE)
    fleet.until(job, "COMPLETED")
