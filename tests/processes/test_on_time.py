"""Executions start when they are due: none early, all within 2 s."""

from __future__ import annotations

from uuid import UUID

from tests.support.processes import Fleet

ON_TIME = """
    select count(*) filter (where status = 'COMPLETED'), count(*) filter (where started_at < scheduled_at),
           count(*) filter (where lateness > interval '2 s'), max(lateness)::text
    from pgtick.executions
"""


def test_ten_thousand_jobs_over_ten_seconds_all_start_on_time(fleet: Fleet) -> None:
    fleet.register()
    fleet.connection.execute("set synchronous_commit = off")
    # 10,000 different times from 3 s on, in one transaction each hundred, by the function that people use.
    fleet.value("select set_config('x.at', (clock_timestamp() + interval '12 s')::text, false)")
    for hundred in range(100):
        fleet.connection.execute(
            "select pgtick.create_job('quick', to_char((current_setting('x.at')::timestamptz"
            " + (%s + n) * interval '1 ms') at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))"
            " from generate_series(1, 100) as n",
            [hundred * 100],
        )
    for _ in range(2):
        fleet.launch()
    fleet.eventually("select count(*) = 10000 from pgtick.finished_executions", timeout=60)
    completed, early, late, latest = fleet.connection.execute(ON_TIME).fetchone()  # type: ignore[misc]
    assert (completed, early, late) == (10_000, 0, 0), f"the latest: {latest}"
    assert fleet.value(
        "select max(scheduled_at) - min(scheduled_at) > interval '9.9 s' from pgtick.finished_executions"
    )


def test_an_idle_worker_starts_what_comes_now_soon_and_late(fleet: Fleet) -> None:
    fleet.start()
    hour = "select to_char(now() at time zone 'UTC' + interval '1 h', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
    fleet.post("quick", fleet.value(hour))
    fleet.eventually("select exists (select from pgtick.workers where last_seen_at > started_at + interval '2 s')")
    soon = "select to_char(now() at time zone 'UTC' + interval '1.5 s', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
    jobs: list[UUID] = [
        fleet.post("quick"),
        fleet.post("quick", fleet.value(soon)),
        fleet.post("quick", "2020-01-01T00:00Z"),
    ]
    for job in jobs:
        fleet.until(job, "COMPLETED")
    completed, early, late, latest = fleet.connection.execute(ON_TIME).fetchone()  # type: ignore[misc]
    assert (completed, early, late) == (3, 0, 0), latest
