"""The command line for people and for programs: tables, --json, exit statuses, completion."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from app.cli import main, pgtick
from tests.support.api import Rows
from tests.support.waiting import eventually

Connection = psycopg.Connection[Any]
TASKS = """
insert into pgtick.tasks (task_id, target, parameters_schema) values ('make_report', 'y', null), ('send_email', 'x', %s)
"""
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
EARLY, LATE = "2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z"


@pytest.fixture
def rows(dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Rows:
    monkeypatch.setenv("DATABASE_URL", dsn)
    connection.execute(TASKS, [json.dumps(SCHEMA)])
    return Rows(connection)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(pgtick, arguments)


def read(*arguments: str) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_job_is_added_listed_shown_and_cancelled(rows: Rows) -> None:
    arguments = ("jobs", "add", "send_email", "to=john@example.com", "copies=[1, 2]", "--schedule", "0 10 * * *")
    job_id = call(*arguments, "--user", "ann", "--key", "k").output.strip()
    assert call(*arguments, "--user", "ann", "--key", "k").output.strip() == job_id
    [listed] = read("jobs", "list", "--user", "ann")
    assert (listed["job_id"], listed["status"], listed["expression"]) == (job_id, "PENDING", "0 10 * * *")
    table = call("jobs", "list").output.splitlines()
    assert table[0].split()[:3] == ["JOB", "ID", "TASK"]
    assert table[1].startswith(job_id)
    shown = read("jobs", "show", job_id)
    assert shown["parameters"] == {"to": "john@example.com", "copies": [1, 2]}
    assert "explanation" in call("jobs", "show", job_id).output
    assert call("jobs", "cancel", job_id).output == "cancelled\n"
    assert call("jobs", "cancel", job_id).output == "there was nothing left to cancel\n"
    assert read("jobs", "list", "--status", "cancelled")[0]["job_id"] == job_id


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("jobs", "add", "nope"), 1, "/task_id: no task 'nope' is registered"),
        (("jobs", "add", "send_email"), 1, "/parameters/to: the task needs this parameter"),
        (("jobs", "add", "make_report", "--schedule", "0 0 30 2 *"), 1, "/schedule: no month has such a day"),
        (("jobs", "add", "make_report", "x"), 2, "'x' is not NAME=VALUE"),
        (("jobs", "add", "make_report", "--policies", "{"), 2, "is not JSON"),
        (("jobs", "show", "01a22b71-1d75-740f-a9c2-cdb05c1549c9"), 1, "there is no job"),
        (("jobs", "cancel", "01a22b71-1d75-740f-a9c2-cdb05c1549c9"), 1, "there is no job"),
        (("jobs", "list", "--task", "nope"), 2, "no task 'nope' is registered"),
        (("jobs", "list", "--since", "yesterday"), 2, "ISO 8601"),
        (("jobs", "list", "--since", ""), 2, "must not be empty"),
        (("jobs", "list", "--error", ""), 2, "must not be empty"),
        (("executions", "list", "--user", ""), 2, "must have 1 to 200 characters"),
        (("executions", "list", "--since", LATE, "--until", EARLY), 2, "must be later than --since"),
        (("jobs", "list", "--since", LATE, "--until", LATE), 2, "must be later than --since"),
        (("jobs", "add", "make_report", "--key", ""), 2, "must be 1 to 255 visible ASCII characters"),
        (("jobs", "add", "make_report", "--key", "a b"), 2, "must be 1 to 255 visible ASCII characters"),
        (("jobs", "add", "make_report", 'a={"b": 1, "b": 2}'), 2, "a key is there twice"),
        (("jobs", "add", "make_report", "--policies", '{"overlap": "skip", "overlap": "allow"}'), 2, "there twice"),
        (("jobs", "add", "make_report", f"a={'[' * 100_000}"), 2, "nested too deep"),
        (("tokens", "add", ""), 2, "must have 1 to 200 characters"),
        (("tokens", "add", "a\nb"), 2, "must have 1 to 200 characters"),
        (("tokens", "add", "a" * 201), 2, "must have 1 to 200 characters"),
        (("archive", "query", "--status", "nope"), 2, "'nope' is not one of"),
        (("archive", "query", "--job", "nope"), 2, "not a valid UUID"),
        (("archive", "query", "--limit", "-1"), 2, "-1 is not in the range"),
        (("archive", "query", "--jobs", "--status", "failed"), 2, "is for executions"),
        (("archive", "query", "--since", LATE[:19], "--until", EARLY[:19]), 2, "must be later than --since"),
        (("executions", "show", "x"), 2, "is no id of an execution"),
        (("executions", "retry", "1-01a22b71-1d75-740f-a9c2-cdb05c1549c9"), 1, "there is no job"),
        (("executions", "cancel", "1-01a22b71-1d75-740f-a9c2-cdb05c1549c9"), 1, "there is no execution"),
        (("tasks", "show", "nope"), 1, "there is no task"),
        (("workers", "drain", "nowhere"), 1, "no worker"),
    ],
)
def test_what_cannot_be_done_is_said_with_an_exit_status(
    rows: Rows, arguments: tuple[str, ...], status: int, says: str
) -> None:
    result = call(*arguments)
    output = result.output + (str(result.exception) if result.exception else "")
    assert result.exit_code == status, output
    assert says in output.replace("\n", " ")


def test_a_key_finds_its_job_when_the_times_of_it_are_past(rows: Rows) -> None:
    end = datetime.now(UTC) + timedelta(seconds=3)
    arguments = ("jobs", "add", "make_report", "--schedule", "* * * * * *", "--key", "k")
    policies = json.dumps({"end_at": end.isoformat()})
    made = call(*arguments, "--policies", policies).output
    eventually(lambda: datetime.now(UTC) > end)
    assert call(*arguments, "--policies", policies).output == made


def test_an_argument_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["pgtick", "jobs", "list", "--error", "\udcff"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "an argument is not UTF-8\n"


def test_a_list_of_jobs_goes_on_where_a_page_ends_early(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    for minutes in (1, 4, 9):
        rows.finished(rows.job(), 600 - 60 * minutes)
    monkeypatch.setattr("app.store.search.FIRST_WINDOW", timedelta(minutes=2))
    monkeypatch.setattr("app.store.search.BUDGET_S", 0.0)
    assert len(read("jobs", "list")) == 3


def test_executions_that_are_coming_are_listed_when_they_are_asked_for(rows: Rows) -> None:
    result = call("jobs", "add", "make_report", "--schedule", "2030-01-01T00:00:00Z")
    assert result.exit_code == 0, result.output
    rows.finished(rows.job(), 0, "FAILED", error="boom")
    assert [row["status"] for row in read("executions", "list")] == ["FAILED"]
    for asked in (("--coming",), ("--until", "2035-01-01T00:00:00Z")):
        assert [row["status"] for row in read("executions", "list", *asked)] == ["PENDING", "FAILED"]
    for asked in (("--status", "PENDING"), ("--since", "2029-01-01T00:00:00Z")):
        assert [row["status"] for row in read("executions", "list", *asked)] == ["PENDING"]


def test_executions_are_listed_shown_retried_and_cancelled(rows: Rows) -> None:
    job_id = rows.job()
    rows.finished(job_id, 0, "FAILED", error="boom\nbang")
    rows.finished(rows.job("bob", "make_report"), 1)
    [failed] = read("executions", "list", "--error", "BOOM")
    assert (failed["job_id"], failed["task_id"], failed["error"]) == (job_id, "send_email", "boom\nbang")
    assert [row["user_id"] for row in read("executions", "list")] == ["bob", "ann"]
    assert [row["user_id"] for row in read("executions", "list", "--oldest-first", "-n", "1")] == ["ann"]
    assert len(call("executions", "list").output.splitlines()) == 3, "one line each"
    assert read("executions", "show", failed["execution_id"])["status"] == "FAILED"
    new = call("executions", "retry", failed["execution_id"]).output.strip()
    assert read("executions", "show", new)["origin"] == f"retry of {failed['execution_id']}"
    assert call("executions", "cancel", new).output == "it is CANCELLED\n"
    over = call("executions", "cancel", failed["execution_id"])
    assert (over.exit_code, over.output) == (1, "it is FAILED\n")


def test_a_task_is_paused_and_resumed(rows: Rows, connection: Connection) -> None:
    assert call("tasks", "resume", "make_report").output == "it was not paused\n"
    said = call("tasks", "pause", "make_report", "--note", "month end").output
    assert said == "paused; 0 executions that are due are held back\n"
    assert read("tasks", "show", "make_report")["paused_note"] == "month end"
    assert call("tasks", "resume", "make_report").output == "resumed\n"
    assert read("tasks", "show", "make_report")["paused_at"] is None
    (entry,) = connection.execute("select user_id from pgtick.audit_log where action = 'pause_task'").fetchall()
    assert entry == (getpass.getuser(),)


def test_tasks_workers_and_top(rows: Rows, connection: Connection) -> None:
    assert read("tasks", "show", "send_email")["parameters_schema"] == SCHEMA
    assert [row["task_id"] for row in read("tasks", "list")] == ["make_report", "send_email"]
    connection.execute("insert into pgtick.workers (name, capacity, version) values ('host:1', 5, '0')")
    connection.execute("insert into pgtick.findings values ('late', 'task x', 'Start more workers.')")
    assert read("workers", "list")[0]["name"] == "host:1"
    connection.execute("update pgtick.workers set last_seen_at = now() - interval '2 minutes'")
    assert read("workers", "list")[0]["state"] == "SILENT", "as pgtick.worker_status says"
    connection.execute("update pgtick.workers set last_seen_at = now()")
    seen = call("top", "--once")
    assert seen.exit_code == 0, seen.output
    assert "host:1" in seen.output
    assert "Start more workers." in seen.output
    assert call("workers", "drain", "host").output == "1 worker is draining\n"


def test_the_shell_completes_nouns_verbs_and_options() -> None:
    source = call("completion", "bash").output
    assert "_PGTICK_COMPLETE=bash_complete" in source
    for words, wanted in (
        ("pgtick jo", "jobs"),
        ("pgtick executions re", "retry"),
        ("pgtick jobs list --st", "--status"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", "from app.cli import main; main()"],
            env=os.environ
            | {
                "_PGTICK_COMPLETE": "bash_complete",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split()) - 1),
            },
            text=True,
            capture_output=True,
            check=False,
        )
        assert wanted in done.stdout, (words, done.stderr)
