"""What the command line does to jobs and shows of schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from app.cli import pgtick

Connection = psycopg.Connection[Any]

TAKES_A = '{"properties": {"a": {}}, "additionalProperties": false}'


@pytest.fixture
def job_id(dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DATABASE_URL", dsn)
    connection.execute(
        "insert into pgtick.tasks (task_id, target, parameters_schema) values ('send_email', 'x', %s)", [TAKES_A]
    )
    row = connection.execute("select pgtick.create_job('send_email', '0 10 * * *')").fetchone()
    assert row is not None
    return str(row[0])


def call(*arguments: str) -> Result:
    return CliRunner().invoke(pgtick, arguments)


def test_a_job_through_all_that_can_be_done_to_it(job_id: str, connection: Connection) -> None:
    assert "paused" in call("jobs", "pause", job_id, "--note", "holidays").output
    assert call("jobs", "list").output.splitlines()[1].split()[3:] == [
        "PAUSED",
        "0",
        "10",
        "*",
        "*",
        "*",
        "-",
        "-",
        "-",
    ]
    assert call("jobs", "resume", job_id).output == "resumed\n"
    assert call("jobs", "resume", job_id).output == "it was not paused\n"
    assert job_id in call("jobs", "run", job_id).output
    following = call("jobs", "next", job_id, "-n", "2").output.splitlines()
    assert following[0] == "at 10:00 every day"
    assert "SKIPPED" in call("jobs", "skip", job_id, "--at", following[2].split()[0]).output
    assert call("jobs", "next", job_id, "-n", "2").output.splitlines()[1] == following[1]
    assert following[2] not in call("jobs", "next", job_id, "-n", "2").output
    arguments = ("jobs", "edit", job_id, "--schedule", "0 * * * *", "--timezone", "Asia/Tokyo", "--policies")
    assert call(*arguments, '{"overlap": "allow"}').output == "changed\n"
    assert call(*arguments, '{"overlap": "allow"}').output == "nothing changed\n"
    now = datetime.now(UTC)
    span = ("--start", (now - timedelta(minutes=90)).isoformat(), "--end", now.isoformat())
    assert "0 executions made" in call("jobs", "backfill", job_id, *span, "--dry-run").output
    assert "executions made" in call("jobs", "backfill", job_id, *span).output
    assert connection.execute(
        "select count(*) > 0 from pgtick.pending_executions where origin = 'backfill'"
    ).fetchone() == (True,)
    actions = connection.execute("select action from pgtick.audit_log order by entry_id").fetchall()
    assert [row[0] for row in actions] == ["pause", "resume", "run_now", "skip", "edit", "backfill"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("edit", "JOB", "--schedule", "0 0 30 2 *"), "/schedule: no month has such a day"),
        (("edit", "JOB", "--policies", "{"), "is not JSON"),
        (("edit", "JOB", "--parameters", '{"bogus": 1}'), "/parameters/bogus: the task has no such parameter"),
        (("skip", "JOB", "--at", "0001-01-01T00:00:00Z"), "years 2000 to 2199"),
        (("add", "send_email", "a=1", "a=2"), "'a' is there 2 times"),
        (("skip", "JOB", "--at", "soon"), "ISO 8601"),
        (("pause", "not-an-id"), "not a valid UUID"),
    ],
)
def test_what_is_wrong_is_said_and_ends_with_an_error(job_id: str, arguments: tuple[str, ...], says: str) -> None:
    done = call("jobs", *[job_id if part == "JOB" else part for part in arguments])
    assert says in done.output
    assert done.exit_code in (1, 2)


def test_previews_and_the_forecast(job_id: str) -> None:
    shown = call(
        "schedules", "preview", "30 2 * * *", "--timezone", "America/New_York", "--after", "2026-03-07T12:00:00Z"
    )
    assert "2026-03-08T07:00:00Z  2026-03-08T03:00:00-04:00" in shown.output
    assert call("schedules", "preview", "61 * * * *").exit_code == 1
    assert "10:00Z  1" in call("schedules", "forecast").output
