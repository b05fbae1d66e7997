"""What a role's or a database's own settings say makes no difference: `alter database … set DateStyle = 'German'`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from app.store.connections import connect
from tests.support import strange
from tests.support.api import running_api
from tests.support.databases import Server, migrate

PARAMETERS = {"to": "東京", "sign": "€ 😀"}
AT = "2031-05-04T03:02:01.000000Z"


@pytest.mark.parametrize(
    "settings",
    [
        {"client_encoding": "LATIN1"},
        {"DateStyle": "German"},
        {"DateStyle": "SQL, DMY"},
        {"IntervalStyle": "iso_8601"},
        {"TimeZone": "Asia/Tokyo"},
        {"extra_float_digits": "-15"},
        strange.SETTINGS,
    ],
    ids=lambda settings: " ".join(settings.values()),
)
def test_the_api_answers_as_ever(dsn: str, connection: psycopg.Connection, settings: dict[str, str]) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'x')")
    strange.make(connection, **settings)
    with running_api(dsn) as api:
        once = api.created(schedule=AT, parameters=PARAMETERS)
        daily = api.created(schedule="0 10 * * *", timezone="Europe/Berlin")
        assert api.get(f"/jobs/{once['job_id']}")["parameters"] == PARAMETERS
        assert {job["job_id"] for job in api.get("/jobs")["jobs"]} == {once["job_id"], daily["job_id"]}
        assert api.get("/tasks")["tasks"]
        executions = api.get("/executions", start_time="2031-05-04T03:00:00Z", end_time="2031-05-04T03:03:00Z")
        assert [execution["scheduled_at"] for execution in executions["executions"]] == [AT]


def test_connections_of_ours_are_all_alike(owner_dsn: str, connection: psycopg.Connection) -> None:
    strange.make(connection)
    now = datetime.now(UTC)
    with connect(owner_dsn) as ours:
        row: Any = ours.execute(
            "select now(), extract(epoch from now())::float8, interval '1 day 2 s', '東京',"
            " current_setting('transaction_isolation')"
        ).fetchone()
    assert abs(row[0] - now) < timedelta(seconds=60)
    assert abs(row[1] - row[0].timestamp()) < 1e-5
    assert row[2:] == (timedelta(days=1, seconds=2), "東京", "read committed")


def test_the_schema_is_migrated_as_ever(server: Server) -> None:
    with server.database() as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            strange.make(connection)
            strange.limit_transactions(connection)
        migrate(dsn)
        migrate(dsn)
        with connect(dsn) as ours:
            wrong = "select count(*) from pgtick.partitions where until_at - from_at not in ('1 hour', '1 day')"
            assert ours.execute(wrong).fetchone() == (0,)


@pytest.mark.parametrize("settings", [strange.SETTINGS, {"DateStyle": "SQL, DMY", "TimeZone": "Asia/Tokyo"}], ids=str)
def test_jobs_are_created_in_any_session(dsn: str, connection: psycopg.Connection, settings: dict[str, str]) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'x')")
    strange.make(connection, **settings)
    with psycopg.connect(dsn, autocommit=True) as own:
        create = "select pgtick.create_job('send_email', %s, timezone => %s)::text"
        once: Any = own.execute(create, [AT, "UTC"]).fetchone()
        here: Any = own.execute(create, ["2031-05-04T05:02:01", "Europe/Berlin"]).fetchone()
        daily: Any = own.execute(create, ["0 10 * * *", "Europe/Berlin"]).fetchone()
        for job_id in (once[0], here[0]):
            row = own.execute(
                "select scheduled_at = %s::timestamptz from pgtick.executions where job_id = %s", [AT, job_id]
            ).fetchone()
            assert row == (True,)
        for job_id in (once[0], daily[0]):
            told: Any = own.execute("select pgtick.explain(%s)", [job_id]).fetchone()
            assert told[0].startswith("It is"), told
        wrong = "select count(*) from pgtick.partitions where until_at - from_at not in ('1 hour', '1 day')"
        assert own.execute(wrong).fetchone() == (0,)
