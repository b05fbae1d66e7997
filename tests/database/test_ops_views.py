"""The views for people on call: each tells the truth about a state that was made for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from app.store import queries
from workers.stats import LATENESS_BOUNDS_MS

Connection = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def task(connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target, queue) values ('send_email', 'mail:send', 'mail')")


def rows(connection: Connection, query: str) -> list[dict[str, Any]]:
    return connection.cursor(row_factory=dict_row).execute(query).fetchall()


def one(connection: Connection, query: str) -> dict[str, Any]:
    (row,) = rows(connection, query)
    return row


def start_worker(connection: Connection, **columns: object) -> None:
    facts = {"name": "host:1", "capacity": 10, "task_keys": [1], "version": "0", **columns}
    names = ", ".join(facts)
    places = ", ".join(["%s"] * len(facts))
    connection.execute(f"insert into pgtick.workers ({names}) values ({places})", list(facts.values()))


def pend(connection: Connection, due_in: str, task_key: int = 1) -> None:
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
        " values (pgtick.uuid7(), now() + %s::interval, now() + %s::interval, 'u', %s)",
        [due_in, due_in, task_key],
    )


def run(connection: Connection, **columns: str) -> None:
    facts = {"due_at": "now()", "claimed_at": "now()", "lease_expires_at": "now() + interval '30 s'", **columns}
    connection.execute(
        "insert into pgtick.running_executions"
        " (claim_id, job_id, scheduled_at, user_id, task_key, priority, attempt, losses, suspect, worker_id,"
        f" {', '.join(facts)}) overriding system value"
        f" select count(*) + 1, pgtick.uuid7(), now(), 'u', 1, 2, 1, 0, false, 1, {', '.join(facts.values())}"
        " from pgtick.running_executions"
    )


def count(connection: Connection, minutes_ago: int, histogram: dict[int, int], **counts: int) -> None:
    """Statistics as a worker stores them; the histogram by the index of its bucket."""
    buckets = [histogram.get(i, 0) for i in range(len(LATENESS_BOUNDS_MS) + 1)]
    facts = {"started": sum(buckets), "completed": sum(buckets), "failed": 0, "retried": 0, **counts}
    connection.execute(
        f"insert into pgtick.execution_stats (minute, task_key, worker_id, lateness, {', '.join(facts)})"
        " values (date_trunc('minute', now()) - %s * interval '1 minute', 1, 1, %s, %s, %s, %s, %s)",
        [minutes_ago, buckets, *facts.values()],
    )


def late_finding(connection: Connection) -> str:
    connection.execute(queries.findings, {"snapshot_age": timedelta(hours=1)})
    sentence: str = one(connection, "select sentence from pgtick.findings where kind = 'late'")["sentence"]
    return sentence


def test_more_workers_are_asked_for_only_where_slots_are_short(connection: Connection) -> None:
    start_worker(connection, running=7)
    pend(connection, "-3 s")
    assert "though workers have free slots. To see why: select pgtick.explain(" in late_finding(connection)
    for _ in range(10):  # claimed since the worker told what it runs
        run(connection)
    assert late_finding(connection).endswith(". Start more workers, or raise PGTICK_CONCURRENCY.")


def test_slots_of_a_worker_that_is_not_seen_or_blocked_are_not_free(connection: Connection) -> None:
    start_worker(connection, last_seen_at=datetime.now(UTC) - timedelta(seconds=20))
    start_worker(connection, blocked_since=datetime.now(UTC))
    pend(connection, "-3 s")
    assert "Start more workers" in late_finding(connection)


def test_the_bounds_of_the_histogram_are_those_that_workers_count_by(connection: Connection) -> None:
    assert connection.execute("select pgtick.lateness_bounds()").fetchone() == (list(LATENESS_BOUNDS_MS),)


@pytest.mark.parametrize(
    ("histogram", "quantile", "expected"),
    [
        ([0] * 15, 0.5, None),
        ([10] + [0] * 14, 0.5, 0.5),
        ([0, 0, 10] + [0] * 12, 1.0, 5.0),
        ([99] + [0] * 13 + [1], 0.995, 60_000.0),
        ([50, 50] + [0] * 13, 0.99, 1.98),
    ],
)
def test_quantiles_of_a_histogram(
    connection: Connection, histogram: list[int], quantile: float, expected: float | None
) -> None:
    found = connection.execute("select pgtick.lateness_quantile(%s::bigint[], %s)", [histogram, quantile]).fetchone()
    assert found == (expected,)


def test_overview_of_an_idle_database_is_one_row_of_zeros(connection: Connection) -> None:
    row = one(connection, "select * from pgtick.overview")
    assert (row["waiting"], row["late"], row["running"], row["workers"], row["findings"]) == (0, 0, 0, 0, 0)
    assert row["partitions_until"] > row["at"]


def test_overview_counts_what_waits_runs_and_is_late(connection: Connection) -> None:
    start_worker(connection)
    for due_in in ("-1 minute", "-1 s", "1 minute"):
        pend(connection, due_in)
    run(connection)
    run(connection, due_at="now() + interval '1 minute'")
    count(connection, 1, {0: 590, 5: 10}, failed=2, retried=3)
    row = one(connection, "select * from pgtick.overview")
    assert (row["waiting"], row["late"], row["running"], row["workers"], row["capacity"]) == (2, 1, 1, 1, 10)
    assert row["oldest_late"].total_seconds() == pytest.approx(60, abs=1)
    assert (float(row["starts_per_s"]), row["failed_1h"], row["retried_1h"]) == (10.0, 2, 3)
    assert row["p50_ms"] < 1 < row["p99_ms"] < 50


def test_overview_counts_paused_tasks_whose_executions_wait_and_are_not_late(connection: Connection) -> None:
    pend(connection, "-1 minute")
    connection.execute("select pgtick.pause_task('send_email')")
    row = one(connection, "select * from pgtick.overview")
    assert (row["waiting"], row["late"], row["paused_tasks"]) == (1, 0, 1)


def test_late_lists_what_is_due_for_more_than_two_seconds(connection: Connection) -> None:
    for due_in in ("-1 minute", "-1 s", "1 minute"):
        pend(connection, due_in)
    row = one(connection, "select * from pgtick.late")
    assert (row["task_id"], row["queue"]) == ("send_email", "mail")
    assert row["execution_id"].endswith(str(row["job_id"]))


def test_running_tells_runs_from_claims_ahead_and_cancellations(connection: Connection) -> None:
    start_worker(connection)
    run(connection)
    run(connection, due_at="now() + interval '0.4 s'")
    run(connection, cancel_requested_at="now()")
    found = rows(connection, "select worker, doing from pgtick.running order by claim_id")
    assert [row["doing"] for row in found] == ["runs", "waits for its time", "asked to stop"]
    assert {row["worker"] for row in found} == {"host:1"}


def test_failing_names_the_task_and_its_newest_error(connection: Connection) -> None:
    count(connection, 5, {0: 10}, completed=6, failed=4, retried=1)
    connection.execute(
        "insert into pgtick.finished_executions"
        " (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, error)"
        " select pgtick.uuid7(), now() - n * interval '1 minute', 'u', 1, 'FAILED', 4, now(), now(), 'error ' || n"
        " from generate_series(1, 3) n"
    )
    row = one(connection, "select * from pgtick.failing")
    assert (row["task_id"], row["failed"], float(row["failed_share"]), row["last_error"]) == (
        "send_email",
        4,
        0.4,
        "error 1",
    )


def test_failing_has_an_error_of_what_is_only_retried_so_far(connection: Connection) -> None:
    count(connection, 5, {0: 10}, completed=6, retried=1)
    pend(connection, "20 s")
    connection.execute(
        """update pgtick.pending_executions set attempt = 2, errors = '[{"error": "a"}, {"error": "no route"}]'"""
    )
    row = one(connection, "select * from pgtick.failing")
    assert (row["last_error"], row["last_failed_at"]) == ("no route", None)
    assert "no route" in one(connection, f"select pgtick.explain('{row['last_execution_id']}') as said")["said"]


def test_stuck_is_empty_when_all_is_well(connection: Connection) -> None:
    start_worker(connection)
    pend(connection, "-1 minute")
    run(connection)
    connection.execute("select pgtick.create_job('send_email', '* * * * *')")
    assert rows(connection, "select * from pgtick.stuck") == []


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("no worker", "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
                      " values (pgtick.uuid7(), now() - interval '1 min', now() - interval '1 min', 'u', 1)"),
        ("broken schedule", "insert into pgtick.schedules (job_id, user_id, task_key, expression, problem)"
                            " values (pgtick.uuid7(), 'u', 1, '0 0 * * *', 'no zone Mars/Olympus')"),
        ("not planned", "insert into pgtick.schedules (job_id, user_id, task_key, expression, next_run_at)"
                        " values (pgtick.uuid7(), 'u', 1, '0 0 * * *', now() - interval '1 hour')"),
    ],
)  # fmt: skip
def test_stuck_says_what_will_not_go_on(connection: Connection, kind: str, make: str) -> None:
    connection.execute(make)
    row = one(connection, "select * from pgtick.stuck")
    assert (row["kind"], row["task_id"], row["executions"]) == (kind, "send_email", 1)
    assert row["sentence"]


def test_stuck_shows_leases_that_nobody_takes_back(connection: Connection) -> None:
    run(connection, lease_expires_at="now() - interval '2 minutes'")
    assert one(connection, "select * from pgtick.stuck")["kind"] == "lost lease"


def test_queue_status_has_depth_oldest_rate_and_workers(connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('report', 'r:r')")
    start_worker(connection)
    start_worker(connection, name="host:2", last_seen_at="2020-01-01Z")
    for due_in in ("-1 minute", "-1 s", "1 minute"):
        pend(connection, due_in)
    run(connection)
    count(connection, 1, {0: 120})
    mail, default = sorted(rows(connection, "select * from pgtick.queue_status"), key=lambda r: r["queue"] != "mail")
    assert (mail["depth"], mail["late"], mail["running"], float(mail["starts_per_s"]), mail["workers"]) == (
        2,
        1,
        1,
        2.0,
        1,
    )
    assert mail["oldest_age"].total_seconds() == pytest.approx(60, abs=1)
    assert (default["queue"], default["depth"], default["workers"]) == ("default", 0, 0)


def test_worker_status_tells_the_silent_from_the_living(connection: Connection) -> None:
    start_worker(connection)
    start_worker(connection, name="host:2", last_seen_at="2020-01-01Z")
    found = rows(connection, "select name, state, tasks from pgtick.worker_status order by name")
    assert [(row["name"], row["state"]) for row in found] == [("host:1", "RUNNING"), ("host:2", "SILENT")]
    assert found[0]["tasks"] == ["send_email"]


def test_schedule_status_has_a_word_for_each_state(connection: Connection) -> None:
    connection.execute("select pgtick.create_job('send_email', '0 10 * * *', timezone => 'Asia/Tokyo')")
    connection.execute(
        "insert into pgtick.schedules"
        " (job_id, user_id, task_key, expression, next_run_at, paused_at, paused_note, problem)"
        " values (pgtick.uuid7(), 'u', 1, '0 0 * * *', now(), now(), 'holidays', null),"
        "        (pgtick.uuid7(), 'u', 1, '0 0 * * *', now(), null, null, 'junk'),"
        "        (pgtick.uuid7(), 'u', 1, '0 0 * * *', null, null, null, null)"
    )
    found = rows(connection, "select state, note, schedule, timezone from pgtick.schedule_status order by state")
    assert [row["state"] for row in found] == ["ACTIVE", "BROKEN", "ENDED", "PAUSED"]
    assert [row["note"] for row in found] == [None, "junk", None, "holidays"]
    assert (found[0]["schedule"], found[0]["timezone"]) == ("0 10 * * *", "Asia/Tokyo")


def test_lateness_by_minute_from_the_histograms_of_all_workers(connection: Connection) -> None:
    count(connection, 2, {0: 50})
    count(connection, 2, {0: 40, 12: 10})
    count(connection, 1, {1: 1})
    two, one_ago = rows(connection, "select * from pgtick.lateness order by minute")
    assert (two["started"], two["later_than_2s"], one_ago["started"]) == (100, 10, 1)
    assert two["p50_ms"] == pytest.approx(0.56)
    assert 5000 < two["p95_ms"] < two["p99_ms"] <= 10_000


def test_slo_is_the_share_within_two_seconds_by_hour_and_task(connection: Connection) -> None:
    count(connection, 0, {0: 50, 10: 49, 11: 1})
    row = one(connection, "select * from pgtick.slo")
    assert (row["task_id"], row["started"], row["within_2s"], float(row["share"])) == ("send_email", 100, 99, 0.99)


def test_statistics_are_summed_up_after_an_hour_and_views_show_the_same(connection: Connection) -> None:
    for minutes_ago in (59, 90, 90, 150):
        count(connection, minutes_ago, {0: 50, 11: 1}, failed=2)
    shown = "select * from pgtick.lateness order by minute"
    before = rows(connection, shown)
    slo = rows(connection, "select * from pgtick.slo order by hour")
    rolled_up = []
    while not rolled_up or rolled_up[-1]:
        rolled_up.append(one(connection, "select pgtick.roll_up_stats() as n")["n"])
    assert rolled_up == [1, 2, 0]
    assert one(connection, "select count(*) from pgtick.execution_stats")["count"] == 3
    assert rows(connection, shown) == before
    assert rows(connection, "select * from pgtick.slo order by hour") == slo


def test_partitions_tell_their_bounds_and_size(connection: Connection) -> None:
    row = one(
        connection,
        "select * from pgtick.partitions"
        " where parent = 'finished_executions' and from_at <= now() and until_at > now()",
    )
    assert (row["until_at"] - row["from_at"]).total_seconds() == 3600
    assert row["bytes"] > 0


def test_every_view_is_described_for_psql(connection: Connection) -> None:
    bare = rows(
        connection,
        "select relname from pg_class where relnamespace = 'pgtick'::regnamespace and relkind = 'v'"
        " and obj_description(oid, 'pg_class') is null",
    )
    assert bare == []
