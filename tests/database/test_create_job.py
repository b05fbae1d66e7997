"""pgtick.create_job: from psql and inside a user's own transaction."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.api import requests
from app.api.scheduling import Planned, plan
from app.domain.ids import uuid7
from app.schedule.dates import parse_date

Connection = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def task(connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'mail:send')")


def statuses(connection: Connection, job_id: object) -> list[tuple[Any, ...]]:
    return connection.execute("select status from pgtick.executions where job_id = %s", [job_id]).fetchall()


def create(connection: Connection, *arguments: object) -> Any:
    places = ", ".join(["%s"] * len(arguments))
    row = connection.execute(f"select pgtick.create_job({places})", arguments).fetchone()
    assert row is not None
    return row[0]


def test_a_job_for_now_is_pending_and_due(connection: Connection) -> None:
    job_id = create(connection, "send_email", "now", '{"to": "john@example.com"}')
    row = connection.execute(
        "select due_at <= now(), task_key from pgtick.pending_executions where job_id = %s", [job_id]
    )
    assert row.fetchone() == (True, 1)


def test_a_rolled_back_transaction_leaves_no_job(dsn: str, connection: Connection) -> None:
    with psycopg.connect(dsn) as own:
        job_id = create(own, "send_email")
        own.rollback()
    assert statuses(connection, job_id) == []
    assert connection.execute("select count(*) from pgtick.jobs").fetchone() == (0,)


def test_waiting_workers_hear_of_it_at_commit(dsn: str, connection: Connection) -> None:
    connection.execute("listen pgtick_due")
    with psycopg.connect(dsn) as own:
        create(own, "send_email")
        assert list(connection.notifies(timeout=0.1)) == []
        own.commit()
    assert [n.channel for n in connection.notifies(timeout=5, stop_after=1)] == ["pgtick_due"]


def test_nobody_is_woken_for_what_is_due_much_later(connection: Connection) -> None:
    connection.execute("listen pgtick_due")
    create(connection, "send_email", "2035-01-01T00:00:00Z")
    create(connection, "send_email")
    now = connection.execute("select extract(epoch from min(due_at)) * 1000000 from pgtick.pending_executions")
    heard = [int(notification.payload) for notification in connection.notifies(timeout=5, stop_after=1)]
    assert heard == [(now.fetchone() or [None])[0]]


def test_planners_hear_of_a_schedule_that_begins_soon(dsn: str, connection: Connection) -> None:
    connection.execute("listen pgtick_due")
    connection.execute("listen pgtick_plan")
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("select pgtick.create_job('send_email', '* * * * * *')")
    assert [n.channel for n in connection.notifies(timeout=5, stop_after=1)] == ["pgtick_plan"]


@pytest.mark.parametrize("days", [1, 3, 400])
def test_a_job_however_far_ahead_is_pending(connection: Connection, days: int) -> None:
    at = connection.execute("select to_char(now() + %s * interval '1 day', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')", [days])
    job_id = create(connection, "send_email", (at.fetchone() or [None])[0])
    assert statuses(connection, job_id) == [("PENDING",)]


@pytest.mark.parametrize("date", ["1970-01-01T00:00:00Z", "2020-02-29T12:00:00+05:30"])
def test_a_date_in_the_past_runs_now(connection: Connection, date: str) -> None:
    job_id = create(connection, "send_email", date)
    row = connection.execute("select due_at = now() or now() - due_at < interval '5 s' from pgtick.pending_executions")
    assert row.fetchone() == (True,)
    assert statuses(connection, job_id) == [("PENDING",)]


def test_a_time_exactly_between_two_partitions_belongs_to_the_later(connection: Connection) -> None:
    boundary = connection.execute(
        "select to_char(date_trunc('hour', now()) + interval '1 hour', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
    )
    job_id = create(connection, "send_email", (boundary.fetchone() or [None])[0])
    assert statuses(connection, job_id) == [("PENDING",)]


def test_partitions_that_nobody_made_are_made(connection: Connection) -> None:
    for (name,) in connection.execute("select partition from pgtick.partitions").fetchall():
        connection.execute(f"drop table pgtick.{name}")
    connection.execute(
        "update pgtick.partition_windows set from_at = now() - interval '40 days', until_at = now() - interval '3 days'"
    )
    job_id = create(connection, "send_email")
    assert statuses(connection, job_id) == [("PENDING",)]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("no_such_task",), "task_id"),
        (("send_email", "tomorrow"), "schedule"),
        (("send_email", "2026-12-01T10:00:00"), "schedule"),
        (("send_email", "* * * *"), "schedule"),
        (("send_email", "9999-01-01T00:00:00Z"), "schedule"),
        (("send_email", "now", "[]"), "parameters"),
        (("send_email", "0 10 * * *", "{}", "u", "Mars/Olympus"), "timezone"),
    ],
)
def test_bad_input_names_the_field_and_makes_nothing(
    connection: Connection, arguments: tuple[str, ...], field: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"^{field}: "):
        create(connection, *arguments)
    assert connection.execute("select count(*) from pgtick.jobs").fetchone() == (0,)


def test_cancelling_ends_what_has_not_started(connection: Connection) -> None:
    job_id = create(connection, "send_email", "2026-12-01T10:00:00Z")
    assert connection.execute("select pgtick.cancel_job(%s)", [job_id]).fetchone() == (1,)
    assert statuses(connection, job_id) == [("CANCELLED",)]


@pytest.mark.parametrize(
    ("local", "zone", "instant"),
    [
        ("2027-03-14T02:30", "America/New_York", "2027-03-14T07:00:00Z"),
        ("2027-11-07T01:30:15.25", "America/New_York", "2027-11-07T05:30:15.25Z"),
        ("2027-10-03 02:10", "Australia/Lord_Howe", "2027-10-02T15:30:00Z"),
        ("2027-07-01T10:00", "Asia/Kolkata", "2027-07-01T04:30:00Z"),
    ],
)
def test_a_local_date_is_the_instant_that_clocks_there_show(
    connection: Connection, local: str, zone: str, instant: str
) -> None:
    job_id = create(connection, "send_email", local, "{}", "u", zone)
    row = connection.execute("select run_at from pgtick.jobs where job_id = %s", [job_id]).fetchone()
    assert row == (datetime.fromisoformat(instant),)


def test_local_dates_mean_the_same_in_sql_and_in_the_api(connection: Connection) -> None:
    """Every half hour of the days on which clocks change, in zones of all kinds."""
    now = datetime(2024, 1, 1, tzinfo=UTC)
    days = {
        "America/New_York": ["2024-03-10", "2024-11-03"],
        "Europe/Berlin": ["2025-03-30", "2025-10-26"],
        "Australia/Lord_Howe": ["2025-04-06", "2025-10-05"],
        "Africa/Casablanca": ["2025-02-23", "2025-04-06"],
        "America/Santiago": ["2025-04-05", "2025-09-06", "2025-09-07"],
        "Asia/Tehran": ["2025-03-21"],
    }
    walls = [
        (zone, (datetime.fromisoformat(day) + timedelta(minutes=30 * n)).isoformat())
        for zone, dates in days.items()
        for day in dates
        for n in range(48)
    ]
    rows = connection.execute(
        "select pgtick.instant_of(local::timestamp, zone) from unnest(%s::text[], %s::text[]) with ordinality"
        " as wall (zone, local, n) order by n",
        [[zone for zone, _ in walls], [local for _, local in walls]],
    ).fetchall()
    assert [row[0] for row in rows] == [parse_date(local, zone, now)[0] for zone, local in walls]


@pytest.mark.parametrize(
    ("schedule", "timezone"),
    [
        ("2027-03-08T24:00:00Z", None),
        ("2027-03-08T10:59:60Z", None),
        ("2027-03-08T10:00:00+05:60", None),
        ("2027-03-08T10:00:00+05:99", None),
        ("2027-03-08T10:00:00+15:59", None),
        ("2027-03-08T10:00:00+16:00", None),
        ("2027-03-08T10:00:00+24:00", None),
        ("2027-03-08T10:00:00 Z", None),
        ("2027-03-08T10:00:00Z ", None),
        (" 2027-03-08T10:00:00Z", None),
        ("2027-03-08 10:00:00.123456789z", None),
        ("2027-03-08T10:00:00.1234567891Z", None),
        ("2027-03-08T10:00:00,5Z", None),
        ("2027-03-08T10:00.5Z", None),
        ("20270308T100000Z", None),
        ("2027-W10-1T10:00:00Z", None),
        ("2027-02-29T10:00:00Z", None),
        ("2027-03-08T10:00", None),
        ("2027-03-08T10:00", "Europe/Berlin"),
        ("2027-03-08T10:00Z", "Factory"),
        ("2027-03-08T10:00Z", "localtime"),
        ("2027-03-08T10:00Z", "posix/Europe/Berlin"),
        ("2027-03-08T10:00Z", "right/Europe/Berlin"),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        (" NOW\t", None),
    ],
)
def test_a_date_is_one_in_sql_exactly_when_it_is_one_in_the_api(
    connection: Connection, schedule: str, timezone: str | None
) -> None:
    body = {"task_id": "send_email", "schedule": schedule, "timezone": timezone}
    planned = plan(requests.explain(body), uuid7(0), "u", datetime.now(UTC), lambda _: True)
    expected = planned.job.run_at if isinstance(planned, Planned) else "refused"
    found: Any = "refused"
    with suppress(psycopg.errors.InvalidParameterValue):
        read = connection.execute("select (pgtick.read_schedule(%s, %s)).at", [schedule, timezone]).fetchone()
        found = read and read[0]
    assert found == expected


def test_policies_are_kept_and_reach_the_execution(connection: Connection) -> None:
    policies = Jsonb({"overlap": "queue_one", "expires_after_s": 30})
    row = connection.execute("select pgtick.create_job('send_email', policies => %s)", [policies]).fetchone()
    assert row is not None
    found = connection.execute(
        "select j.policies, p.overlap, extract(epoch from p.expires_at - p.due_at)::int"
        " from pgtick.jobs j join pgtick.pending_executions p using (job_id) where job_id = %s",
        [row[0]],
    )
    assert found.fetchone() == ({"overlap": "queue_one", "expires_after_s": 30}, "queue_one", 30)


@pytest.mark.parametrize(
    ("schedule", "policies", "field"),
    [
        ("* * * * *", {"overlop": "skip"}, "policies.overlop"),
        ("* * * * *", {"overlop": None}, "policies.overlop"),
        ("now", {"overlop": None}, "policies.overlop"),
        ("* * * * *", {"overlap": "wait"}, "policies.overlap"),
        ("* * * * *", {"exclude": [1]}, "policies.exclude"),
        ("* * * * *", {"exclude": "2027-01-01"}, "policies.exclude"),
        ("* * * * *", {"exclude": ["2027-01-01"] * 367}, "policies.exclude"),
        ("* * * * *\n", {}, "schedule"),
        ("* * * * \u0661", {}, "schedule"),
        ("* * * * *", {"jitter_s": -1}, "policies.jitter_s"),
        ("* * * * *", {"jitter_s": 86_401}, "policies.jitter_s"),
        ("* * * * *", {"missed_window_s": 604_801}, "policies.missed_window_s"),
        ("* * * * *", {"expires_after_s": 316_224_001}, "policies.expires_after_s"),
        ("0," * 124 + "0 * * * *", {}, "schedule"),
        ("* * * * *", {"max_runs": "3"}, "policies.max_runs"),
        ("* * * * *", [1], "policies"),
        ("now", {"missed": "all"}, "policies.missed"),
        ("* * * * *", {"max_runs": 1.5}, "policies.max_runs"),
        ("* * * * *", {"max_runs": 5.0}, "policies.max_runs"),
        ("* * * * *", {"start_at": "2027-01-01T00:00:00Z", "end_at": "2026-12-31T23:00:00-00:30"}, "policies.end_at"),
        ("* * * * *", {"start_at": "2027-01-01"}, "policies.start_at"),
        ("* * * * *", {"start_at": "0001-01-01T00:00:00Z"}, "policies.start_at"),
        ("* * * * *", {"end_at": "2200-01-01T00:00:00Z"}, "policies.end_at"),
        ("2027-02-30T10:00:00Z", {}, "schedule"),
        ("2027-03-01T10:00:00", {}, "schedule"),
    ],
)
def test_bad_policies_and_dates_name_the_field(
    connection: Connection, schedule: str, policies: Any, field: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"^{field}: "):
        connection.execute("select pgtick.create_job('send_email', %s, policies => %s)", [schedule, Jsonb(policies)])


def test_blanks_around_an_expression_do_not_count(connection: Connection) -> None:
    create(connection, "send_email", "0 3 * * *" + " " * 300)
    assert connection.execute("select expression from pgtick.jobs").fetchone() == ("0 3 * * *",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("max_retries", value) for value in (99_999, 1001, -1)],
        *[("timeout_s", value) for value in (0, -1, float("nan"), float("inf"), 1e300, 31_536_001)],
        *[("user_id", value) for value in ("", None, "u" * 201, "a\nb", "ann\n", "a\x7f")],
    ],
)
def test_what_the_api_refuses_is_refused_naming_the_field(connection: Connection, name: str, value: Any) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"^{name}: "):
        connection.execute(f"select pgtick.create_job('send_email', {name} => %s)", [value])


@pytest.mark.parametrize("timeout_s", ["NaN", "Infinity", "1e300", "0"])
def test_no_job_has_a_timeout_that_is_none(connection: Connection, timeout_s: str) -> None:
    create(connection, "send_email")
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("update pgtick.jobs set timeout_s = %s::float8", [timeout_s])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"max_retries": "x"}, "max_retries"),
        ({"max_retries": 1.5}, "max_retries"),
        ({"max_retries": 5.0}, "max_retries"),
        ({"max_retries": 1001}, "max_retries"),
        ({"max_retries": True}, "max_retries"),
        ({"timeout_s": "x"}, "timeout_s"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": 1e300}, "timeout_s"),
        ([], "changes"),
        ("x", "changes"),
        (None, "changes"),
    ],
)
def test_bad_changes_name_the_field(connection: Connection, changes: Any, field: str) -> None:
    job_id = create(connection, "send_email", "0 10 * * *")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"^{field}: "):
        connection.execute("select pgtick.edit_job(%s, %s)", [job_id, Jsonb(changes)])
    assert connection.execute(
        "select pgtick.edit_job(%s, %s)", [job_id, Jsonb({"max_retries": 1000, "timeout_s": 0.5})]
    ).fetchone() == (True,)
    assert connection.execute(
        "select pgtick.edit_job(%s, %s)", [job_id, Jsonb({"max_retries": None, "timeout_s": None})]
    ).fetchone() == (True,)


def test_a_new_local_date_is_read_in_the_zone_of_the_job(connection: Connection) -> None:
    row = connection.execute(
        "select pgtick.create_job('send_email', '2031-06-01T10:00', timezone => 'Europe/Berlin')"
    ).fetchone()
    assert row is not None
    job_id = row[0]
    connection.execute("select pgtick.edit_job(%s, %s)", [job_id, Jsonb({"schedule": "2031-12-01T10:00"})])
    row = connection.execute("select run_at from pgtick.jobs where job_id = %s", [job_id]).fetchone()
    assert row == (datetime(2031, 12, 1, 9, tzinfo=UTC),)
