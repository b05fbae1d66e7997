"""Executions start when they are due: none early, all within 2 s."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.support.processes import Fleet, serving

ON_TIME = """
    select count(*) filter (where status = 'COMPLETED'), count(*) filter (where started_at < scheduled_at),
           count(*) filter (where lateness > interval '2 s'), max(lateness)::text
    from pgtick.executions
"""


@pytest.fixture
def api(dsn: str) -> Iterator[int]:
    """The port of an API on the test's database."""
    with serving(dsn) as served:
        yield served.port


def test_ten_thousand_jobs_over_ten_seconds_all_start_on_time(fleet: Fleet, api: int) -> None:
    """Every other one through POST /jobs and through the SQL function, each at a millisecond of its own."""
    fleet.register()
    workers = [fleet.launch(), fleet.launch()]
    begin: datetime = fleet.value("select clock_timestamp() + interval '15 s'")
    statuses: set[int] = set()

    def post(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", api, timeout=60)
        for n in range(first, 10_000, 16):
            at = (begin + timedelta(milliseconds=n)).astimezone(UTC).isoformat()
            body = json.dumps({"task_id": "quick", "schedule": at})
            connection.request("POST", "/jobs", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            statuses.add(answer.status)
        connection.close()

    threads = [threading.Thread(target=post, args=[first]) for first in range(0, 16, 2)]
    for thread in threads:
        thread.start()
    for hundred in range(50):
        fleet.connection.execute(
            "select pgtick.create_job('quick', to_char((%s + n * interval '1 ms') at time zone 'UTC',"
            ' \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\')) from generate_series(%s, %s, 2) as n',
            [begin, hundred * 200 + 1, hundred * 200 + 199],
        )
    for thread in threads:
        thread.join()
    assert statuses == {201}
    fleet.eventually("select count(*) = 10000 from pgtick.finished_executions", timeout=90)
    completed, early, late, latest = fleet.connection.execute(ON_TIME).fetchone()  # type: ignore[misc]
    assert (completed, early, late) == (10_000, 0, 0), f"the latest: {latest}"
    assert all(worker.process.poll() is None for worker in workers)


def test_an_idle_worker_starts_what_comes_now_soon_and_late(fleet: Fleet) -> None:
    fleet.start()
    hour = "select to_char(now() at time zone 'UTC' + interval '1 h', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
    fleet.post("quick", fleet.value(hour))
    fleet.eventually("select exists (select from pgtick.workers where last_seen_at > started_at + interval '2 s')")
    soon = "select to_char(now() at time zone 'UTC' + interval '1.5 s', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
    past = "2020-01-01T00:00Z"
    jobs: list[UUID] = [fleet.post("quick"), fleet.post("quick", fleet.value(soon)), fleet.post("quick", past)]
    for job in jobs:
        fleet.until(job, "COMPLETED")
    completed, early, late, latest = fleet.connection.execute(ON_TIME).fetchone()  # type: ignore[misc]
    assert (completed, early, late) == (3, 0, 0), latest
