"""Listing jobs and executions: what is there once, in order, page by page, while rows move."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import psycopg
import pytest

from app.domain.execution import STATUSES
from app.store.search import Filter, Search
from app.store.search_statements import Statement
from app.store.users import Users
from tests.support.api import Api, Rows

Connection = psycopg.Connection[Any]
HOUR = 3600.0


@pytest.fixture
def rows(api: Api, connection: Connection) -> Rows:
    return Rows(connection)


def one_of_each(rows: Rows) -> dict[str, str]:
    """A job in each status, a minute apart in the order of STATUSES; returns their ids."""
    jobs = {status: rows.job() for status in STATUSES}
    for minute, (status, job_id) in enumerate(jobs.items()):
        if status == "PENDING":
            rows.pending(job_id, minute * 60)
        elif status == "RETRYING":
            rows.pending(job_id, minute * 60, attempt=1)
        elif status == "IN_PROGRESS":
            rows.running(job_id, minute * 60)
        else:
            rows.finished(job_id, minute * 60, status, error="boom" if status == "FAILED" else None)
    return jobs


def listed(api: Api, path: str = "/jobs", **query: Any) -> list[tuple[str, str]]:
    return [(item["job_id"], item["status"]) for item in api.get(path, **query)[path.split("/")[-1]]]


def test_every_state_is_listed_newest_first_and_found_by_its_status(api: Api, rows: Rows) -> None:
    jobs = one_of_each(rows)
    everything = [(job_id, status) for status, job_id in reversed(jobs.items())]
    for path in ("/jobs", "/executions"):
        for query in ({}, {"user_id": "ann"}, {"task_id": "send_email"}):
            assert listed(api, path, **query) == everything
            for status, job_id in jobs.items():
                assert listed(api, path, status=status, **query) == [(job_id, status)]
            assert listed(api, path, status="FAILED,PENDING", **query) == [
                (jobs["FAILED"], "FAILED"),
                (jobs["PENDING"], "PENDING"),
            ]
        assert api.get(path, user_id="bob")[path[1:]] == []
        assert api.get(path, task_id="make_report")[path[1:]] == []
    for status, job_id in jobs.items():
        assert api.get(f"/jobs/{job_id}")["status"] == status
        assert listed(api, f"/jobs/{job_id}/executions") == [(job_id, status)]


def test_an_execution_shows_its_times_and_errors(api: Api, rows: Rows) -> None:
    jobs = one_of_each(rows)
    by_status = {item["status"]: item for item in api.get("/executions")["executions"]}
    assert by_status["FAILED"]["error"] == "boom"
    assert (by_status["FAILED"]["attempt"], by_status["FAILED"]["lateness_s"]) == (1, 0)
    assert by_status["RETRYING"]["error"] == "boom"
    assert by_status["RETRYING"]["errors"] == [{"attempt": 1, "error": "boom"}]
    assert by_status["IN_PROGRESS"]["worker_id"] == 7
    assert by_status["IN_PROGRESS"]["started_at"] is not None
    assert by_status["PENDING"]["started_at"] is None
    for status, item in by_status.items():
        assert item["job_id"] == jobs[status]
        assert api.get(f"/executions/{item['execution_id']}") == item


def test_a_thousand_executions_of_one_time_are_paged_once_each_while_they_move(
    api: Api, rows: Rows, connection: Connection
) -> None:
    answer = api.call("POST", "/jobs/batch", json=[{"task_id": "send_email", "user_id": "ann"}] * 1000)
    assert answer.json is not None
    for path, key in (("/executions", "executions"), ("/jobs", "jobs")):
        seen: list[str] = []
        for number, page in enumerate(api.pages(path, key, user_id="ann", limit=7)):
            seen += [item["job_id"] for item in page]
            # Most finish between two pages, in no order that the listing knows.
            if number % 20 == 0:
                connection.execute(
                    "with gone as (delete from pgtick.pending_executions where ctid in"
                    " (select ctid from pgtick.pending_executions order by random() limit 100) returning *)"
                    " insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt,"
                    " due_at, finished_at)"
                    " select job_id, scheduled_at, user_id, task_key, 'COMPLETED', 1, due_at, now() from gone"
                )
        assert seen == sorted(answer.json["job_ids"], reverse=True)


def test_pages_are_exact_to_the_microsecond(api: Api, rows: Rows) -> None:
    jobs = [rows.job() for _ in range(10)]
    for n, job_id in enumerate(jobs):
        rows.finished(job_id, n / 1_000_000)
    pages = list(api.pages("/executions", "executions", limit=3))
    assert [[item["job_id"] for item in page] for page in pages] == [
        jobs[:6:-1],
        jobs[6:3:-1],
        jobs[3:0:-1],
        jobs[:1],
    ]


def test_a_job_shows_its_newest_execution_that_matches(api: Api, rows: Rows) -> None:
    job_id = rows.job(expression="* * * * *")
    for minute in range(5):
        rows.finished(job_id, minute * 60, "FAILED" if minute == 3 else "COMPLETED")
    rows.running(job_id, 300)
    rows.standing(job_id, HOUR)
    [newest] = api.get("/jobs")["jobs"]
    assert (newest["status"], newest["scheduled_at"]) == ("PENDING", newest["next_run_at"])
    for status, minute in (("IN_PROGRESS", 5), ("FAILED", 3), ("COMPLETED", 4)):
        [found] = api.get("/jobs", status=status)["jobs"]
        assert found["scheduled_at"] == rows.at(minute * 60).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    [found] = api.get("/jobs", status="COMPLETED,FAILED", end_time=rows.at(240).isoformat())["jobs"]
    assert found["status"] == "FAILED"
    assert len(api.get("/executions")["executions"]) == len(api.get(f"/jobs/{job_id}/executions")["executions"]) == 7


def test_a_job_tells_how_its_newest_run_that_has_ended_did_end(api: Api, rows: Rows, connection: Connection) -> None:
    failing, daily, monthly, fresh = (rows.job(expression="* * * * *") for _ in range(4))
    single = rows.job()
    for seconds in (-23 * HOUR, -30 * 24 * HOUR):
        connection.execute(
            "select pgtick.make_partition('finished_executions', hour, hour + interval '1 hour')"
            " from date_bin('1 hour', %s, '2000-01-01Z') as hour",
            [rows.at(seconds)],
        )
    connection.execute(
        "update pgtick.partition_windows set from_at = from_at - interval '40 days'"
        " where parent = 'finished_executions'"
    )
    connection.execute("update pgtick.jobs set created_at = now() - interval '40 days'")
    for minute in range(4):
        rows.finished(failing, minute * 60, "COMPLETED" if minute < 2 else "FAILED")
    rows.finished(failing, 270, "SKIPPED")
    rows.running(failing, 300)
    rows.finished(failing, 2 * HOUR, "CANCELLED")
    rows.finished(daily, -23 * HOUR, "FAILED")
    rows.finished(monthly, -30 * 24 * HOUR, "CANCELLED")
    rows.finished(single, 60)
    for job_id in (failing, daily, monthly, fresh):
        rows.standing(job_id, HOUR)
    connection.execute(
        "update pgtick.schedules set planned_through = %s where job_id = %s", [rows.at(-30 * 24 * HOUR), monthly]
    )
    expected = {
        failing: ("FAILED", 180.0),
        daily: ("FAILED", -23 * HOUR),
        monthly: ("CANCELLED", -30 * 24 * HOUR),
        fresh: (None, None),
        single: ("COMPLETED", 60.0),
    }
    for query in ({}, {"user_id": "ann", "status": "PENDING,COMPLETED"}):
        found = {job["job_id"]: job for job in api.get("/jobs", **query)["jobs"]}
        assert found.keys() == expected.keys()
        for job_id, (status, at) in expected.items():
            time = None if at is None else rows.at(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            for job in (found[job_id], api.get(f"/jobs/{job_id}")):
                assert (job["last_status"], job["last_run_at"]) == (status, time)


@pytest.mark.parametrize("query", [{}, {"status": "COMPLETED"}, {"user_id": "ann", "status": "COMPLETED,FAILED"}])
def test_recurring_jobs_are_on_one_page_only(api: Api, rows: Rows, query: dict[str, str]) -> None:
    """Ten minutely jobs with history, of which half stand no more, and one-offs between them."""
    recurring = [rows.job(expression="* * * * *") for _ in range(10)]
    single = [rows.job() for _ in range(10)]
    for minute in range(10):
        for job_id in recurring:
            rows.finished(job_id, minute * 60)
        rows.finished(single[minute], minute * 60 + 1)
    for job_id in recurring[::2]:
        rows.standing(job_id, HOUR)
    seen = [item["job_id"] for page in api.pages("/jobs", "jobs", limit=3, **query) for item in page]
    assert sorted(seen) == sorted(recurring + single)


@pytest.mark.parametrize("sort", ["-scheduled_at", "scheduled_at"])
@pytest.mark.parametrize("limit", [1, 2, 50])
def test_a_job_that_ran_once_and_again_by_hand_is_on_one_page_only(
    api: Api, rows: Rows, connection: Connection, sort: str, limit: int
) -> None:
    again, planned, once = rows.job(), rows.job(), rows.job()
    rows.finished(again, 0, "FAILED")
    rows.finished(once, 60)
    for verb in (f"/jobs/{again}/run", f"/executions/{api.get(f'/jobs/{again}')['execution']['execution_id']}/rerun"):
        assert api.call("POST", verb).status_code in (201, 202)
    rows.finish_everything()
    rows.pending(planned, 3 * HOUR)
    assert api.call("POST", f"/jobs/{planned}/run").status_code == 202
    pages = api.pages("/jobs", "jobs", limit=limit, sort=sort)
    assert sorted(item["job_id"] for page in pages for item in page) == sorted([again, planned, once])


def test_a_busy_schedule_does_not_hide_other_jobs(api: Api, rows: Rows, connection: Connection) -> None:
    old = rows.job()
    rows.finished(old, -60)
    busy = rows.job(expression="* * * * * *")
    connection.execute(
        "insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
        " finished_at) select %s, at, 'ann', 1, 'COMPLETED', 1, at, at"
        " from generate_series(%s::timestamptz, now(), interval '0.1 s') as at",
        [busy, rows.start],
    )
    for query in ({}, {"status": "COMPLETED"}):
        assert [item["job_id"] for page in api.pages("/jobs", "jobs", limit=1, **query) for item in page] == [busy, old]


def test_the_time_window_includes_its_start_and_not_its_end(api: Api, rows: Rows) -> None:
    jobs = [rows.job() for _ in range(4)]
    rows.finished(jobs[0], 0)
    rows.pending(jobs[1], 1)
    rows.running(jobs[2], 2)
    rows.standing(jobs[3], 3)
    for path in ("/jobs", "/executions"):
        for low in range(4):
            for high in range(low + 1, 5):
                window = {"start_time": rows.at(low).isoformat(), "end_time": rows.at(high).isoformat()}
                assert [job_id for job_id, _ in listed(api, path, **window)] == jobs[low:high][::-1]


def test_a_plus_that_was_not_escaped_is_repaired(api: Api, rows: Rows) -> None:
    rows.finished(rows.job(), 0)
    start = rows.at(0).strftime("%Y-%m-%dT%H:%M:%S")
    for text in (f"{start}+00:00", f"{start}%2B00:00", f"{start} 00:00", f"{start}.0 0000", f"{start}Z"):
        answer = api.call("GET", f"/jobs?start_time={text}")
        assert answer.status_code == 200
        assert answer.json is not None
        assert len(answer.json["jobs"]) == 1


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("start_time=yesterday", "start_time"),
        ("start_time=2026-01-01T00:00:00", "start_time"),
        ("start_time=2026-01-01", "start_time"),
        ("end_time=1796024945", "end_time"),
        ("end_time=", "end_time"),
        ("start_time=2026-01-02T00:00Z&end_time=2026-01-01T00:00Z", "end_time"),
        ("status=DONE", "status"),
        ("status=", "status"),
        ("status=COMPLETED,", "status"),
        ("task_id=nope", "task_id"),
        ("task_id=%00", "task_id"),
        ("user_id=", "user_id"),
        ("user_id=a&user_id=b", "user_id"),
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=MTc5NjAzMjgwMDAwMDAwMC0wMWEyMmI2", "cursor"),
        ("stauts=FAILED", "stauts"),
    ],
)
@pytest.mark.parametrize("path", ["/jobs", "/executions"])
def test_a_filter_that_means_nothing_is_refused_by_name(shared_api: Api, path: str, query: str, parameter: str) -> None:
    answer = shared_api.call("GET", f"{path}?{query}")
    assert answer.status_code == 400
    assert answer.json is not None
    assert answer.json["parameter"] == parameter


def test_extreme_times_and_limits_are_answered(shared_api: Api) -> None:
    for path in ("/jobs", "/executions"):
        for query in (
            {"start_time": "0001-01-01T00:00:00Z", "end_time": "9999-12-31T23:59:59Z"},
            {"start_time": "9999-12-31T23:59:59Z"},
            {"end_time": "0001-01-01T00:00:00Z"},
            {"limit": "999999999"},
        ):
            shared_api.get(path, **query)


def test_a_date_beyond_the_partitions_is_no_next_run_of_a_job_that_was_cancelled(api: Api) -> None:
    made = api.created(user_id="ann", schedule="2033-01-01T00:00:00Z")
    [standing] = api.get("/jobs", user_id="ann")["jobs"]
    assert standing["next_run_at"] == made["next_runs"][0]
    api.call("DELETE", f"/jobs/{made['job_id']}")
    [cancelled] = api.get("/jobs", user_id="ann")["jobs"]
    assert (cancelled["status"], cancelled["next_run_at"]) == ("CANCELLED", None)


def test_paused_and_broken_schedules_are_still_jobs(api: Api, rows: Rows) -> None:
    paused, broken = rows.job(expression="* * * * *"), rows.job(expression="x")
    rows.standing(paused, HOUR, paused=True)
    rows.standing(broken, HOUR + 1, problem="schedule.expression: not understood")
    items = api.get("/jobs", user_id="ann")["jobs"]
    assert {item["next_run_at"] for item in items} == {None}
    assert [(item["job_id"], item["paused_at"] is not None, item["problem"]) for item in items] == [
        (broken, False, "schedule.expression: not understood"),
        (paused, True, None),
    ]
    assert api.get("/executions")["executions"] == []
    for job_id in (paused, broken):
        assert api.get(f"/jobs/{job_id}")["next_runs"] == []


def test_jobs_of_users_that_nobody_registered_are_listed(api: Api, connection: Connection) -> None:
    connection.execute(
        "select pgtick.insert_jobs(array[pgtick.uuid7()], array['eve'], array['send_email'], array['NOW'], '{}',"
        " array['UTC'], '{}', '{}', array['{}'], '{}', '{}', '{}', '{}', '{}', '{}', 'any')"
    )
    for path in ("executions", "jobs"):
        assert [item["user_id"] for item in api.get(f"/{path}")[path]] == ["eve"]


def test_many_users_are_listed_as_few_are(api: Api, rows: Rows, connection: Connection) -> None:
    one_of_each(rows)
    few = api.get("/executions")
    connection.execute("insert into pgtick.users (user_id) select 'u' || n from generate_series(1, 300) n")
    assert api.get("/executions") == few


@pytest.mark.parametrize("query", ["", "?user_id=ann", "?user_id=ann&status=COMPLETED", "?status=FAILED,RETRYING"])
@pytest.mark.parametrize("path", ["/executions", "/jobs"])
def test_a_page_reads_only_the_hours_that_fill_it_and_only_by_index(
    shared_api: Api, monkeypatch: pytest.MonkeyPatch, path: str, query: str
) -> None:
    """The statements of a first page that its first hour fills, as the server plans them."""
    plans: list[str] = []
    real = Search._run

    def explain(self: Search, statement: Statement | None, values: dict[str, Any]) -> list[dict[str, Any]]:
        if statement is not None:
            self._connection.execute("set enable_seqscan = off")
            explained = self._connection.execute(
                "explain " + statement.sql, statement.constants | values, prepare=False
            ).fetchall()
            plans.append("\n".join(line for (line,) in explained))
            self._connection.execute("reset enable_seqscan")
        rows = real(self, statement, values)
        return rows or [_far_ahead(n) for n in range(values["n"])]

    def _far_ahead(n: int) -> dict[str, Any]:
        return {"scheduled_at": datetime(2199, 1, 1, tzinfo=UTC), "job_id": f"{n:036}"}

    monkeypatch.setattr(Search, "_run", explain)
    shared_api.services.pool.run(
        lambda c: Search(c, _filter(query), datetime.now(UTC), Users(), whole_jobs=path == "/jobs").page(None, 5)
    )
    finished = [plan for plan in plans if "finished_executions" in plan]
    assert finished
    for plan in plans:
        assert not re.search(r"Seq Scan on (finished|pending)_executions", plan), plan
    # The hour that ends now and those that may be ahead, not those before.
    for plan in finished:
        hours = set(re.findall(r"finished_executions_(\d{8}_\d{4})", plan))
        oldest = min(hours)
        assert oldest >= (datetime.now(UTC) - timedelta(hours=1, minutes=1)).strftime("%Y%m%d_%H00")


def _filter(query: str) -> Filter:
    wanted = dict(part.split("=") for part in query.removeprefix("?").split("&") if part)
    statuses = frozenset(wanted["status"].split(",")) if "status" in wanted else None
    return Filter(user_id=wanted.get("user_id"), statuses=statuses)


def test_listings_are_filtered_by_a_part_of_the_error_and_by_the_kind_of_schedule(api: Api, rows: Rows) -> None:
    one_off, recurring = rows.job(), rows.job(expression="* * * * *")
    for minute, (job_id, error) in enumerate(
        [(one_off, "Connection refused"), (recurring, "connection RESET"), (recurring, "no 100% sure_thing")]
    ):
        rows.finished(job_id, minute * 60, "FAILED", error=error)
    rows.finished(one_off, 600)
    rows.pending(recurring, 300, attempt=1)
    for query, minutes in (
        ({"error": "CONNECTION"}, [1, 0]),
        ({"error": "boom"}, [5]),
        ({"error": "0% sure_"}, [2]),
        ({"error": "connection", "status": "COMPLETED"}, []),
        ({"error": "connection", "schedule_type": "CRON"}, [1]),
        ({"schedule_type": "date"}, [10, 0]),
        ({"schedule_type": "CRON", "user_id": "ann"}, [5, 2, 1]),
        ({"schedule_type": "NOW"}, []),
    ):
        found = [item["scheduled_at"] for item in api.get("/executions", **query)["executions"]]
        assert found == [rows.at(n * 60).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for n in minutes], query
    [job] = api.get("/jobs", error="reset")["jobs"]
    assert (job["job_id"], job["error"]) == (recurring, "connection RESET")
    assert [job["job_id"] for job in api.get("/jobs", schedule_type="DATE")["jobs"]] == [one_off]
    for query in ({"schedule_type": "CRONE"}, {"sort": "user_id"}, {"error": ""}):
        assert api.call("GET", "/jobs", query_string=query).status_code == 400


@pytest.mark.parametrize(
    "query", [{}, {"user_id": "ann"}, {"status": "COMPLETED,FAILED"}, {"user_id": "ann", "limit": 2}]
)
@pytest.mark.parametrize("path", ["/executions", "/jobs"])
def test_the_oldest_first_is_the_newest_first_turned_round(
    api: Api, rows: Rows, connection: Connection, path: str, query: dict[str, Any]
) -> None:
    for n in range(7):
        job_id = rows.job("ann" if n % 2 else "bob")
        rows.finished(job_id, -n * 3000 if n < 2 else n // 3, "FAILED" if n % 3 else "COMPLETED")
    rows.pending(rows.job(), 4000)
    rows.running(rows.job("bob"), 3)
    rows.standing(rows.job(), 10**6)
    recurring = rows.job(expression="* * * * *")
    if path == "/executions":
        for n in range(4):
            rows.finished(recurring, n)
    key = path[1:]
    there = [item for page in api.pages(path, key, **query) for item in page]
    back = [item for page in api.pages(path, key, sort="scheduled_at", **query) for item in page]
    assert back == there[::-1]
    assert len(there) > 3
    window = {"start_time": rows.at(0).isoformat(), "end_time": rows.at(5000).isoformat()} | query
    there = [item for page in api.pages(path, key, **window) for item in page]
    assert [item for page in api.pages(path, key, sort="scheduled_at", **window) for item in page] == there[::-1]


def test_recurring_jobs_are_on_one_page_only_also_oldest_first(api: Api, rows: Rows) -> None:
    jobs = [rows.job(expression="* * * * *") for _ in range(8)]
    for minute in range(6):
        for job_id in jobs:
            rows.finished(job_id, minute * 60)
    seen = [item for page in api.pages("/jobs", "jobs", limit=3, sort="scheduled_at") for item in page]
    assert sorted(item["job_id"] for item in seen) == sorted(jobs)
    assert {item["scheduled_at"] for item in seen} == {rows.at(0).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


def test_what_is_rare_is_found_over_several_pages_when_there_is_much_to_look_through(
    api: Api, rows: Rows, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.search.BUDGET_S", -1.0)
    connection.execute("select pgtick.ensure_partitions(since => now() - interval '4 days')")
    rare = []
    for hour in range(0, 90, 30):
        rare.append(rows.job())
        rows.finished(rare[-1], -hour * HOUR - 700, "FAILED", error="rare")
        rows.finished(rows.job(), -hour * HOUR, "FAILED", error="other")
    rare.insert(0, rows.job())
    rows.pending(rare[0], 3000, attempt=1)
    connection.execute('update pgtick.pending_executions set errors = \'[{"error": "rare"}]\'')
    for path, sort in product(("/executions", "/jobs"), ("-scheduled_at", "scheduled_at")):
        pages = list(api.pages(path, path[1:], error="rare", sort=sort, limit=2))
        assert any(len(page) < 2 for page in pages[:-1]), "some pages end early"
        seen = [item["job_id"] for page in pages for item in page]
        assert seen == (rare if sort[0] == "-" else rare[::-1])
