"""What can be done to a job through the API, and what the database holds afterwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from app.store import queries
from tests.support.api import Api

Connection = psycopg.Connection[Any]


def value(connection: Connection, query: str, *values: Any) -> Any:
    row = connection.execute(query, values).fetchone()
    return row[0] if row else None


def occur(connection: Connection, job_id: str, *seconds: float) -> None:
    """Makes occurrences pending, as a planner does, so many seconds from now; the next one stands a minute later."""
    for each in seconds:
        connection.execute(
            "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, overlap)"
            " select %s, at, at, 'default', 1, 'skip' from (select now() + %s) t (at)",
            [job_id, timedelta(seconds=each)],
        )
    connection.execute(
        "update pgtick.schedules set next_run_at = now() + %s, planned_through = now() + %s, runs = %s"
        " where job_id = %s",
        [timedelta(seconds=max(seconds) + 60), timedelta(seconds=max(seconds)), len(seconds), job_id],
    )


def done(api: Api, verb: str, job_id: str, body: Any = None, status: int = 200) -> Any:
    method, path = ("PATCH", "") if verb == "edit" else ("POST", f"/{verb}")
    options = {} if body is None else {"json": body}
    answer = api.call(method, f"/jobs/{job_id}{path}", **options)
    assert answer.status_code == status, answer.text
    return answer.json


class TestPausing:
    def test_a_recurring_job_takes_back_what_is_ahead_and_goes_on_after_now(
        self, api: Api, connection: Connection
    ) -> None:
        job_id = api.created(schedule="* * * * *")["job_id"]
        occur(connection, job_id, -1, 20, 80)
        shown = done(api, "pause", job_id, {"note": "holidays"})
        assert (shown["taken_back"], shown["paused_note"], shown["next_runs"]) == (2, "holidays", [])
        assert value(connection, "select count(*) from pgtick.pending_executions") == 1, "what is due goes on"
        assert api.get(f"/jobs/{job_id}/next")["runs"] == []
        shown = done(api, "resume", job_id)
        assert shown["paused_at"] is None
        first = datetime.fromisoformat(shown["next_runs"][0])
        assert timedelta(0) < first - datetime.now(UTC) <= timedelta(seconds=61)
        assert done(api, "resume", job_id)["changed"] is False

    @pytest.mark.parametrize("days", [1, 400])
    def test_a_single_run_waits_visibly_until_it_is_resumed(self, api: Api, connection: Connection, days: int) -> None:
        at = datetime.now(UTC) + timedelta(days=days)
        job_id = api.created(schedule=at.isoformat())["job_id"]
        done(api, "pause", job_id)
        assert value(connection, "select count(*) from pgtick.pending_executions") == 0
        assert [run["status"] for run in api.get("/executions")["executions"]] == ["PENDING"]
        connection.execute("update pgtick.schedules set next_run_at = now() - interval '1 hour'")
        done(api, "resume", job_id)
        late = value(connection, "select now() - next_run_at from pgtick.schedules")
        assert timedelta(0) <= late < timedelta(seconds=5), "its time passed: it is due now"

    def test_what_has_started_cannot_be_paused(self, api: Api) -> None:
        job_id = api.created()["job_id"]
        assert "started" in done(api, "pause", job_id, status=409)["detail"]


class TestSkipping:
    def test_the_next_one_becomes_skipped_and_is_not_planned_again(self, api: Api, connection: Connection) -> None:
        job_id = api.created(schedule="* * * * *")["job_id"]
        occur(connection, job_id, 20)
        at = value(connection, "select scheduled_at from pgtick.pending_executions")
        skipped = done(api, "skip", job_id)
        assert api.get(f"/executions/{skipped['execution_id']}")["status"] == "SKIPPED"
        assert value(connection, "select count(*) from pgtick.pending_executions") == 0
        done(api, "pause", job_id)
        done(api, "resume", job_id)
        assert value(connection, "select skips from pgtick.schedules") == [at]

    def test_a_coming_one_by_its_time(self, api: Api) -> None:
        job_id = api.created(schedule="0 10 * * *")["job_id"]
        runs = [run["at"] for run in api.get(f"/jobs/{job_id}/next", n=3)["runs"]]
        skipped = done(api, "skip", job_id, {"scheduled_at": runs[1]})
        assert api.get(f"/executions/{skipped['execution_id']}")["error"] == "skipped by hand"
        assert [run["at"] for run in api.get(f"/jobs/{job_id}/next", n=2)["runs"]] == [runs[0], runs[2]]
        assert done(api, "skip", job_id, {"scheduled_at": runs[1]}, 409)

    def test_one_whose_time_has_come_but_for_its_jitter(self, api: Api, connection: Connection) -> None:
        job_id = api.created(schedule="* * * * *", policies={"jitter_s": 3600})["job_id"]
        occur(connection, job_id, -10, 20)
        connection.execute("update pgtick.pending_executions set due_at = scheduled_at + interval '30 minutes'")
        first, second = api.get(f"/jobs/{job_id}/next", n=2)["runs"]
        done(api, "edit", job_id, {"policies": {"overlap": "allow"}})
        held = value(connection, "select scheduled_at from pgtick.pending_executions")
        assert held == datetime.fromisoformat(first["at"]), "its time has come: an edit does not take it back"
        assert datetime.fromisoformat(second["at"]) > held
        assert done(api, "skip", job_id)["execution_id"].startswith(f"{held.timestamp() * 1e6:.0f}-")
        assert value(connection, "select count(*) from pgtick.pending_executions") == 0

    @pytest.mark.parametrize(
        "at",
        ["2020-01-01T10:00:00Z", "2030-01-01T10:00:01Z", "2199-01-01T10:00:00Z", "soon", "2030-01-01T10:00:00"],
    )
    def test_what_is_no_coming_occurrence_is_refused(self, shared_api: Api, at: str) -> None:
        job_id = shared_api.created(schedule="0 10 * * *")["job_id"]
        (error,) = done(shared_api, "skip", job_id, {"scheduled_at": at}, 422)["errors"]
        assert error["pointer"] == "/scheduled_at"


class TestRunningNow:
    def test_it_runs_besides_the_grid(self, api: Api, connection: Connection) -> None:
        job_id = api.created(schedule="0 10 * * *")["job_id"]
        before = api.get(f"/jobs/{job_id}")["next_runs"]
        made = done(api, "run", job_id, status=202)
        assert api.get(f"/executions/{made['execution_id']}")["origin"] == "run_now"
        assert api.get(f"/jobs/{job_id}")["next_runs"] == before
        assert value(connection, "select runs from pgtick.schedules") == 0


class TestBackfilling:
    def test_a_dry_run_counts_and_a_real_one_makes_each_once(self, api: Api, connection: Connection) -> None:
        job_id = api.created(schedule="0 * * * *")["job_id"]
        end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        span = {"start": (end - timedelta(hours=9)).isoformat(), "end": end.isoformat()}
        dry = done(api, "backfill", job_id, {**span, "dry_run": True})
        assert (dry["occurrences"], dry["made"], len(dry["times"])) == (10, 0, 10)
        assert value(connection, "select count(*) from pgtick.pending_executions") == 0
        assert done(api, "backfill", job_id, span, 202)["made"] == 10
        assert done(api, "backfill", job_id, span, 202)["made"] == 0
        found = connection.execute(
            "select origin, overlap, count(*), max(due_at) <= now() from pgtick.pending_executions group by 1, 2"
        )
        assert found.fetchall() == [("backfill", "wait", 10, True)]

    def test_what_was_before_the_job_itself_is_among_its_executions(self, api: Api, connection: Connection) -> None:
        job_id = api.created(schedule="0 * * * *")["job_id"]
        end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        span = {"start": (end - timedelta(hours=5)).isoformat(), "end": (end - timedelta(hours=4)).isoformat()}
        assert done(api, "backfill", job_id, span, 202)["made"] == 2
        connection.execute(
            "with gone as (delete from pgtick.pending_executions returning *) insert into pgtick.finished_executions"
            " (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, started_at, finished_at)"
            " select job_id, scheduled_at, user_id, task_key, 'COMPLETED', 1, due_at, now(), now() from gone"
        )
        statuses = [run["status"] for run in api.get(f"/jobs/{job_id}/executions")["executions"]]
        assert statuses == ["PENDING", "COMPLETED", "COMPLETED"]
        assert api.get(f"/jobs/{job_id}")["last_status"] == "COMPLETED"
        assert [job["last_status"] for job in api.get("/jobs")["jobs"]] == ["COMPLETED"]

    def test_what_was_left_out_is_run_under_a_time_of_its_own(self, api: Api, connection: Connection) -> None:
        job_id = api.created(schedule="0 * * * *")["job_id"]
        end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        for hours, status in ((1, "COMPLETED"), (0, "SKIPPED")):
            connection.execute(
                "insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt,"
                " due_at, finished_at) values (%s, %s, 'default', 1, %s, 1, now(), now())",
                [job_id, end - timedelta(hours=hours), status],
            )
        span = {"start": (end - timedelta(hours=1)).isoformat(), "end": end.isoformat()}
        assert done(api, "backfill", job_id, span, 202)["made"] == 1
        at = value(connection, "select scheduled_at from pgtick.pending_executions")
        assert at == end + timedelta(microseconds=1)

    @pytest.mark.parametrize(
        ("start", "end", "pointer"),
        [(-1, 1, "/end"), (-1, -2, "/end"), (-800, -1, "/start"), (-100, 0, "/end")],
        ids=["to come", "backwards", "too long ago", "too many"],
    )
    def test_it_is_bounded(self, shared_api: Api, start: float, end: float, pointer: str) -> None:
        job_id = shared_api.created(schedule="* * * * *")["job_id"]
        now = datetime.now(UTC)
        body = {"start": (now + timedelta(hours=start)).isoformat(), "end": (now + timedelta(hours=end)).isoformat()}
        (error,) = done(shared_api, "backfill", job_id, body, 422)["errors"]
        assert error["pointer"] == pointer


class TestEditing:
    def test_a_new_schedule_replaces_what_is_ahead_and_leaves_what_is_due(
        self, api: Api, connection: Connection
    ) -> None:
        job_id = api.created(schedule="* * * * *")["job_id"]
        occur(connection, job_id, -1, 20, 80)
        shown = done(api, "edit", job_id, {"schedule": {"expression": "0 10 * * *", "timezone": "Europe/Berlin"}})
        assert (shown["changed"], shown["schedule"]["expression"]) == (True, "0 10 * * *")
        assert value(connection, "select array_agg(due_at < now()) from pgtick.pending_executions") == [True]
        local = value(
            connection, "select to_char(%s::timestamptz at time zone 'Europe/Berlin', 'HH24:MI')", shown["next_runs"][0]
        )
        assert local == "10:00"
        assert (
            value(connection, "select (expression, timezone, runs)::text from pgtick.schedules")
            == '("0 10 * * *",Europe/Berlin,1)'
        )

    @pytest.mark.parametrize(
        "body",
        [
            {"schedule": "0 9 * * *"},
            {"schedule": {"type": "CRON", "expression": "0 9 * * *", "timezone": "Asia/Tokyo"}, "max_retries": 7},
            {"timezone": "Europe/Paris"},
            {"parameters": {"b": 1e3, "a": [1, {"x": None}]}, "timeout_s": 2.5},
            {"policies": {"overlap": "allow", "missed": "all", "exclude": ["2026-12-25"]}},
            {"max_retries": None, "timeout_s": None, "policies": None},
            {},
        ],
    )
    def test_the_same_body_changes_nothing(self, api: Api, connection: Connection, body: dict[str, Any]) -> None:
        job_id = api.created(schedule="* * * * *", max_retries=1, policies={"jitter_s": 5})["job_id"]
        first = done(api, "edit", job_id, body)
        assert first["changed"] is bool(body)
        occur(connection, job_id, 20)
        everything = (
            "select j::text || s::text || p::text from pgtick.jobs j, pgtick.schedules s, pgtick.pending_executions p"
        )
        before = value(connection, everything)
        again = done(api, "edit", job_id, body)
        assert again["changed"] is False
        assert value(connection, everything) == before

    def test_what_is_left_out_stays_and_policies_are_merged(self, api: Api) -> None:
        job_id = api.created(
            schedule="0 9 * * *", timezone="Asia/Tokyo", policies={"jitter_s": 5}, parameters={"a": 1}
        )["job_id"]
        shown = done(api, "edit", job_id, {"policies": {"missed": "skip"}})
        assert (shown["policies"]["jitter_s"], shown["policies"]["missed"]) == (5, "skip")
        shown = done(api, "edit", job_id, {"policies": {"jitter_s": None}, "schedule": "0 8 * * *"})
        assert (shown["policies"]["jitter_s"], shown["policies"]["missed"]) == (0, "skip")
        assert (shown["schedule"]["timezone"], shown["parameters"]) == ("Asia/Tokyo", {"a": 1})

    @pytest.mark.parametrize(("given", "to"), [(1, 2), (1, 400), (400, 1), (400, 500)])
    def test_the_date_of_a_single_run_moves(self, api: Api, connection: Connection, given: int, to: int) -> None:
        now = datetime.now(UTC)
        job_id = api.created(schedule=(now + timedelta(days=given)).isoformat())["job_id"]
        target = (now + timedelta(days=to)).isoformat(timespec="milliseconds")
        for changed in (True, False):
            assert done(api, "edit", job_id, {"schedule": target})["changed"] is changed
            (run,) = api.get("/executions")["executions"]
            assert (run["status"], datetime.fromisoformat(run["scheduled_at"])) == (
                "PENDING",
                datetime.fromisoformat(target),
            )

    def test_a_single_run_that_has_started_keeps_its_time_but_not_its_retries(
        self, api: Api, connection: Connection
    ) -> None:
        job_id = api.created()["job_id"]
        connection.execute("update pgtick.pending_executions set attempt = 1")
        assert "started" in done(api, "edit", job_id, {"schedule": "2030-01-01T00:00:00Z"}, 409)["detail"]
        assert done(api, "edit", job_id, {"max_retries": 9})["max_retries"] == 9

    def test_an_interval_counts_on_as_it_did_until_it_is_another(self, api: Api, connection: Connection) -> None:
        job_id = api.created(schedule="@every 90s")["job_id"]
        connection.execute("update pgtick.schedules set anchor_at = '2026-01-01Z', problem = 'it had one'")
        anchor = "select anchor_at = '2026-01-01Z' from pgtick.schedules where problem is null"
        done(api, "edit", job_id, {"policies": {"missed": "skip"}})
        assert value(connection, anchor) is True
        done(api, "edit", job_id, {"schedule": "@every 91s"})
        assert value(connection, anchor) is False

    def test_once_becomes_recurring_and_back(self, api: Api, connection: Connection) -> None:
        job_id = api.created(schedule="2030-01-01T00:00:00Z")["job_id"]
        assert done(api, "edit", job_id, {"schedule": "@daily"})["schedule"]["type"] == "CRON"
        assert done(api, "edit", job_id, {"schedule": "2031-01-01T00:00:00Z"})["next_runs"] == [
            "2031-01-01T00:00:00.000000Z"
        ]
        assert value(connection, "select count(*) from pgtick.schedules") == 1

    @pytest.mark.parametrize(
        ("body", "pointers"),
        [
            ({"task_id": "other", "user_id": "u"}, ["/task_id", "/user_id"]),
            ({"schedule": None}, ["/schedule"]),
            ({"schedule": "0 0 30 2 *"}, ["/schedule"]),
            ({"schedule": "61 * * * *", "max_retries": -1}, ["/max_retries", "/schedule"]),
            ({"timezone": "Mars/Olympus"}, ["/timezone"]),
            ({"policies": {"overlap": "both", "jitter_s": -1}}, ["/policies/jitter_s", "/policies/overlap"]),
            ({"policies": {"end_at": "2020-01-01T00:00:00Z"}}, ["/schedule/expression"]),
            ({"parameters": [1]}, ["/parameters"]),
            ({"parameters": {"a": "\x00"}}, ["/parameters/a"]),
            ([], [""]),
        ],
    )
    def test_faults_are_all_named_and_nothing_changes(self, shared_api: Api, body: Any, pointers: list[str]) -> None:
        job_id = shared_api.created(schedule="0 10 * * *")["job_id"]
        before = shared_api.get(f"/jobs/{job_id}")
        assert sorted(error["pointer"] for error in done(shared_api, "edit", job_id, body, 422)["errors"]) == pointers
        assert shared_api.get(f"/jobs/{job_id}") == before


def test_what_comes_next_is_the_same_everywhere(api: Api, connection: Connection) -> None:
    """What is pending counts; what was cancelled or skipped does not, and what was skipped is none of max_runs."""
    job_id = api.created(schedule="* * * * *", policies={"max_runs": 5})["job_id"]
    minute = timedelta(minutes=1)
    start = datetime.now(UTC).replace(second=0, microsecond=0) + minute
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
        " select %s, at, at, 'default', 1 from unnest(%s) t (at)",
        [job_id, [start + minute, start + 2 * minute]],
    )
    connection.execute(
        "update pgtick.schedules set next_run_at = %s, planned_through = %s, runs = 2",
        [start + 3 * minute, start + 2 * minute],
    )
    cancelled = value(connection, "select pgtick.execution_id(%s, %s::uuid)", start + 2 * minute, job_id)
    assert api.call("POST", f"/executions/{cancelled}/cancel").status_code == 200
    done(api, "skip", job_id, {"scheduled_at": (start + 3 * minute).isoformat()})
    expected = [start + minute * n for n in (1, 4, 5, 6)]
    assert [datetime.fromisoformat(run["at"]) for run in api.get(f"/jobs/{job_id}/next")["runs"]] == expected
    assert [datetime.fromisoformat(at) for at in api.get(f"/jobs/{job_id}")["next_runs"]] == expected
    done(api, "pause", job_id)
    assert api.get(f"/jobs/{job_id}/next")["runs"] == api.get(f"/jobs/{job_id}")["next_runs"] == []


def test_a_schedule_that_is_over_or_broken_hinders_no_other_change(api: Api, connection: Connection) -> None:
    job_id = api.created(schedule="0 10 * * *", policies={"end_at": "2035-01-01T00:00:00Z"})["job_id"]
    for broken in ({"expression": "0 10 * * *", "policies": '{"end_at": "2020-01-01T00:00:00Z"}'},
                   {"expression": "0 0 30 2 *", "policies": None}):  # fmt: skip
        connection.execute("update pgtick.jobs set expression = %(expression)s, policies = %(policies)s", broken)
        retries = 3 if broken["policies"] else 4
        assert done(api, "edit", job_id, {"max_retries": retries, "parameters": {"to": "x"}})["max_retries"] == retries
        assert done(api, "edit", job_id, {"timezone": "Europe/Berlin"}, 422)


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "skip", "edit", "backfill"])
def test_what_is_not_there_or_cancelled_takes_no_verb(shared_api: Api, verb: str) -> None:
    body = {"backfill": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "edit": {}}.get(verb)
    if verb == "backfill":
        now = datetime.now(UTC) - timedelta(minutes=5)
        body = {"start": now.isoformat(), "end": now.isoformat()}
    for unknown in ("01900000-0000-7000-8000-000000000000", "nonsense"):
        assert done(shared_api, verb, unknown, body, 404)
    job_id = shared_api.created(schedule="0 10 * * *")["job_id"]
    shared_api.call("DELETE", f"/jobs/{job_id}")
    assert "cancelled" in done(shared_api, verb, job_id, body, 409)["detail"]


def test_a_cancelled_run_beyond_the_partitions_is_cancelled_everywhere(api: Api, connection: Connection) -> None:
    job_id = api.created(schedule="2031-01-01T00:00:00Z")["job_id"]
    api.call("DELETE", f"/jobs/{job_id}")
    assert [run["status"] for run in api.get("/executions")["executions"]] == ["CANCELLED"]
    assert value(connection, "select status from pgtick.executions") == "CANCELLED"
    assert value(connection, "select count(*) from pgtick.next_runs()") == 0
    for days, left in ((1, 1), (0, 0)):
        connection.execute(queries.forget_schedules, {"retention": timedelta(days=days)})
        assert value(connection, "select count(*) from pgtick.schedules") == left


def test_verbs_are_in_the_audit_log_with_the_user(api: Api, connection: Connection) -> None:
    job_id = api.created(schedule="0 10 * * *")["job_id"]
    for verb in ("pause", "resume", "skip"):
        done(api, verb, job_id)
    done(api, "run", job_id, status=202)
    done(api, "edit", job_id, {"max_retries": 5})
    assert api.call("DELETE", f"/jobs/{job_id}").status_code == 200
    entries = connection.execute("select action, user_id from pgtick.audit_log order by entry_id").fetchall()
    assert entries == [(action, "default") for action in ("pause", "resume", "skip", "run_now", "edit", "cancel")]


def test_tasks_put_and_operations_stopped_are_in_it_too(api: Api, connection: Connection) -> None:
    assert api.call("PUT", "/tasks/bill", json={"url": "https://billing.example.com/bill"}).status_code == 201
    api.created(schedule="2030-01-01T00:00:00Z")
    connection.execute(
        "insert into pgtick.operations (user_id, action, filter, matched) values (null, 'cancel', '{}', 1)"
    )
    (operation_id,) = connection.execute("select operation_id from pgtick.operations").fetchone() or ()
    for _ in range(2):
        assert api.call("DELETE", f"/operations/{operation_id}").status_code == 200
    entries = connection.execute("select action, subject, user_id from pgtick.audit_log order by entry_id").fetchall()
    assert entries == [("put_task", "bill", "default"), ("stop_operation", str(operation_id), "default")]
