"""Creating, showing and cancelling jobs over HTTP."""

from __future__ import annotations

import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from app.api.jobs import MAX_BATCH
from app.api.responses import rfc3339
from app.store.channel import DUE
from app.store.notifier import BURST, PERIOD_S
from tests.support.api import Api, running_api
from tests.support.waiting import eventually

Connection = psycopg.Connection[Any]


def count(connection: Connection, table: str) -> int:
    row = connection.execute(f"select count(*) from pgtick.{table}").fetchone()
    assert row is not None
    return int(row[0])


def test_a_recurring_job_is_created_as_users_know_it(shared_api: Api) -> None:
    parameters = {"to": "john@example.com", "subject": "Daily Report"}
    answer = shared_api.post({"schedule": "0 10 * * *", "parameters": parameters})
    assert answer.status_code == 201
    job = answer.json
    assert job is not None
    assert answer.headers["Location"] == f"/jobs/{job['job_id']}"
    assert job["schedule"] == {"type": "CRON", "expression": "0 10 * * *", "timezone": "UTC"}
    assert len(job["next_runs"]) == 5
    assert all(run.endswith("T10:00:00.000000Z") for run in job["next_runs"])
    assert (job["user_id"], job["task_id"], job["parameters"]) == ("default", "send_email", parameters)
    assert (job["status"], job["warnings"]) == ("PENDING", [])
    shown = shared_api.get(f"/jobs/{job['job_id']}")
    assert {name: shown[name] for name in ("schedule", "next_runs", "parameters", "status", "created_at")} == {
        name: job[name] for name in ("schedule", "next_runs", "parameters", "status", "created_at")
    }


def test_a_job_for_now_is_due_at_the_time_the_database_wrote_it(api: Api, connection: Connection) -> None:
    job = api.created(parameters={"n": 1})
    row = connection.execute("select scheduled_at, due_at from pgtick.pending_executions").fetchone()
    assert row is not None
    assert row[0] == row[1]
    assert job["schedule"]["type"] == "NOW"
    assert job["next_runs"] == [job["created_at"]] == [row[0].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")]


@pytest.mark.parametrize("date", ["1970-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1999-12-31T23:59:59.999Z"])
def test_a_date_however_long_past_runs_now(api: Api, connection: Connection, date: str) -> None:
    assert api.created(schedule=date)["warnings"] == ["the date is in the past: the job starts now"]
    batch = [{"task_id": "send_email", "schedule": date}] * 150
    assert api.call("POST", "/jobs/batch", json=batch).status_code == 201
    due = connection.execute("select count(*) from pgtick.pending_executions where due_at <= now()").fetchone()
    assert due == (151,)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "1999-12-31T23:59:59Z", "2300-01-01T00:00:00Z"])
def test_times_that_cannot_be_stored_are_refused_naming_the_field(shared_api: Api, at: str) -> None:
    job_id = shared_api.created(schedule="0 10 * * *")["job_id"]
    body = {"schedule": "0 10 * * *", "policies": {"start_at": at}}
    for method, path, given, field in (
        ("POST", "/jobs", {"task_id": "send_email"} | body, "/policies/start_at"),
        ("POST", "/schedules/preview", body, "/policies/start_at"),
        ("PATCH", f"/jobs/{job_id}", body, "/policies/start_at"),
        ("POST", f"/jobs/{job_id}/skip", {"scheduled_at": at}, "/scheduled_at"),
        ("POST", f"/jobs/{job_id}/backfill", {"start": at, "end": "2026-01-01T00:00:00Z"}, "/start"),
    ):
        answer = shared_api.call(method, path, json=given)
        assert (answer.status_code, [fault["pointer"] for fault in answer.json["errors"]]) == (422, [field])


def test_a_date_ahead_is_due_at_that_date(api: Api, connection: Connection) -> None:
    at = datetime.now(UTC) + timedelta(hours=1, microseconds=1)
    job = api.created(schedule=at.isoformat())
    row = connection.execute("select scheduled_at, due_at from pgtick.pending_executions").fetchone()
    assert row == (at, at)
    assert job["schedule"]["run_at"] == job["next_runs"][0] == at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_a_date_in_the_past_runs_now(api: Api, connection: Connection) -> None:
    job = api.created(schedule="2020-01-01T00:00:00Z")
    assert job["next_runs"] == [job["created_at"]]
    assert connection.execute("select due_at <= now() from pgtick.pending_executions").fetchone() == (True,)


@pytest.mark.parametrize("days", [3, 400])
def test_a_date_beyond_the_partitions_is_pending_all_the_same(api: Api, days: int) -> None:
    job = api.created(schedule=(datetime.now(UTC) + timedelta(days=days)).isoformat())
    [listed] = api.get("/jobs")["jobs"]
    assert (listed["job_id"], listed["status"], listed["scheduled_at"]) == (
        job["job_id"],
        "PENDING",
        job["next_runs"][0],
    )
    assert api.get(f"/jobs/{job['job_id']}")["status"] == "PENDING"


def test_overrides_and_policies_are_kept(shared_api: Api) -> None:
    job = shared_api.created(
        user_id="ann", schedule="@every 90s", max_retries=0, timeout_s=1.5, policies={"overlap": "queue_one"}
    )
    shown = shared_api.get(f"/jobs/{job['job_id']}")
    for body in (job, shown):
        assert (body["user_id"], body["max_retries"], body["timeout_s"]) == ("ann", 0, 1.5)
        assert body["policies"]["overlap"] == "queue_one"
        assert body["next_runs"] == job["next_runs"]


def test_awkward_texts_come_back_as_they_were_sent(shared_api: Api) -> None:
    parameters = {'quote"back\\slash': "{,}\t\"' NULL \\N é 😀", "": [None, {"a": ""}]}
    job = shared_api.created(user_id='o"ne, {two} \\', parameters=parameters)
    shown = shared_api.get(f"/jobs/{job['job_id']}")
    assert shown["parameters"] == parameters
    assert shown["user_id"] == 'o"ne, {two} \\'


def test_a_dry_run_shows_what_would_be_made_and_makes_nothing(api: Api, connection: Connection) -> None:
    job = {"task_id": "send_email", "schedule": "0 10 * * *"}
    shown = api.call("POST", "/jobs", query_string={"dry_run": "true"}, json=job, headers={"Idempotency-Key": "k"})
    assert shown.status_code == 200
    assert count(connection, "jobs") == count(connection, "idempotency_keys") == 0
    made = api.post(job, **{"Idempotency-Key": "k"}).json
    assert shown.json is not None
    assert made is not None
    assert shown.json | {"job_id": made["job_id"], "created_at": made["created_at"]} == made
    assert shown.json["job_id"] is None


def test_a_task_is_usable_as_soon_as_it_is_registered(api: Api, connection: Connection) -> None:
    refused = api.post({"task_id": "new_task"})
    assert refused.status_code == 422
    assert refused.json is not None
    assert refused.json["errors"][0]["pointer"] == "/task_id"
    connection.execute("insert into pgtick.tasks (task_id, target) values ('new_task', 'x')")
    assert api.post({"task_id": "new_task"}).status_code == 201


def test_a_refused_body_lists_every_fault_and_makes_nothing(api: Api, connection: Connection) -> None:
    answer = api.post(
        {"task_id": "nope", "max_retries": -1, "paramters": {}, "schedule": {"cron": "x", "date": "y"}, "user_id": ""}
    )
    assert answer.status_code == 422
    assert answer.json is not None
    assert {error["pointer"] for error in answer.json["errors"]} == {
        "/task_id",
        "/max_retries",
        "/paramters",
        "/schedule/cron",
        "/schedule/date",
        "/user_id",
    }
    assert count(connection, "jobs") == 0


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b'{"task_id": "send_email"}', None, 415),
        (b"task_id=send_email", "application/x-www-form-urlencoded", 415),
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b'{"task_id": "\xff"}', "application/json", 400),
        (b'{"task_id": "send_email", "parameters": {"a": "\xff"}}', "application/json", 400),
        (b'{"task_id": "send_email", "parameters": {"a": "\\u0000"}}', "application/json", 422),
        (b'{"task_id": "send_email\\u0000"}', "application/json", 422),
        (b'{"task_id": "send_email", "parameters": {"a": NaN}}', "application/json; charset=utf-8", 422),
        (b'{"task_id": "send_email"}', "application/vnd.api+json", 201),
    ],
)
def test_bodies_are_refused_for_what_they_are(
    shared_api: Api, body: bytes, content_type: str | None, status: int
) -> None:
    assert shared_api.call("POST", "/jobs", data=body, content_type=content_type).status_code == status


def test_parameters_that_nobody_reads_are_refused_before_anything_is_made(api: Api, connection: Connection) -> None:
    job = {"task_id": "send_email"}
    for path, body, name in (
        ("/jobs?dryrun=true", job, "dryrun"),
        ("/jobs?dry_run=false&dry_run=true", job, "dry_run"),
        ("/jobs/batch?dry_run=true", [job], "dry_run"),
        ("/operations?dry_run=true", {"action": "cancel", "filter": {"user_id": "default"}}, "dry_run"),
    ):
        answer = api.call("POST", path, json=body)
        assert (answer.status_code, answer.json["parameter"]) == (400, name)
    assert count(connection, "jobs") == 0
    job_id = api.created(schedule="0 10 * * *")["job_id"]
    assert api.call("DELETE", f"/jobs/{job_id}?dry_run=true").status_code == 400
    assert api.get(f"/jobs/{job_id}")["cancelled_at"] is None


def test_what_takes_no_body_takes_none_that_says_something(api: Api, connection: Connection) -> None:
    job_id = api.created(schedule="0 10 * * *")["job_id"]
    run = api.call("POST", f"/jobs/{job_id}/run").json["execution_id"]
    for path in (
        f"/jobs/{job_id}/run",
        f"/jobs/{job_id}/resume",
        f"/executions/{run}/cancel",
        f"/executions/{run}/rerun",
    ):
        answer = api.call("POST", path, json={"parameters": {"a": 1}})
        assert (answer.status_code, answer.json["errors"][0]["pointer"]) == (422, "/parameters")
        assert api.call("POST", path, data=b"a=1", content_type="application/x-www-form-urlencoded").status_code == 415
        assert api.call("POST", path, data=b"{", content_type="application/json").status_code == 400
    assert count(connection, "pending_executions") == 1
    for body in ({"json": {}}, {"data": b"", "content_type": "application/x-www-form-urlencoded"}):
        assert api.call("POST", f"/jobs/{job_id}/run", **body).status_code == 202


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip"])
def test_a_body_in_a_coding_is_415(shared_api: Api, coding: str) -> None:
    answer = shared_api.post({}, **{"Content-Encoding": coding})
    assert answer.status_code == 415
    assert coding in answer.json["detail"]
    assert shared_api.post({}, **{"Content-Encoding": "identity"}).status_code == 201


@pytest.mark.parametrize("path", ["/jobs", "/jobs/batch"])
def test_a_body_over_the_limit_is_413(path: str) -> None:
    with running_api("postgresql://nowhere", max_body_bytes=100) as api:
        answer = api.call("POST", path, data=b" " * 101, content_type="application/json")
        assert answer.status_code == 413


class Broken:
    """A body whose chunks are none, as gunicorn tells of it: by an exception of its own."""

    def read(self, size: int) -> bytes:
        raise LookupError("zz")


def in_chunks(api: Api, path: str, body: io.BytesIO | Broken, content_type: str) -> int:
    """Sends a body that does not say how long it is; returns the status."""
    environ = {"wsgi.input_terminated": True, "wsgi.input": body, "HTTP_TRANSFER_ENCODING": "chunked"}
    return api.call("POST", path, environ_overrides=environ, content_type=content_type).status_code


def test_a_body_in_chunks_is_taken_whole_or_not_at_all(api: Api, connection: Connection) -> None:
    line = b'{"task_id": "send_email"}\n'
    with running_api(api.services.settings.database_url, max_body_bytes=10 * len(line)) as small:
        assert in_chunks(small, "/jobs/batch", io.BytesIO(11 * line), "application/x-ndjson") == 413
        assert in_chunks(small, "/jobs", io.BytesIO(line + b" " * 1_000), "application/json") == 413
        assert count(connection, "jobs") == 0
        assert in_chunks(small, "/jobs/batch", io.BytesIO(10 * line), "application/x-ndjson") == 201
        pause = f"/jobs/{connection.execute('select job_id from pgtick.jobs').fetchall()[0][0]}/pause"
        assert in_chunks(small, pause, io.BytesIO(b"{}" + b" " * 1_000), "application/json") == 413
        assert in_chunks(small, "/operations", io.BytesIO(b" " * 1_000), "application/json") == 413
    assert count(connection, "jobs") == 10


@pytest.mark.parametrize("path", ["/jobs", "/jobs/batch", "/operations", "/schedules/preview"])
def test_a_body_whose_chunks_are_broken_is_400(shared_api: Api, path: str) -> None:
    assert in_chunks(shared_api, path, Broken(), "application/json") == 400


def test_every_address_answers_a_wrong_method_with_a_problem(shared_api: Api) -> None:
    rules = [rule for rule in shared_api.app.url_map.iter_rules() if not rule.rule.startswith("/docs")]
    assert len(rules) >= 9
    for rule in rules:
        address = "/".join("x" if part.startswith("<") else part for part in rule.rule.split("/"))
        answer = shared_api.call("TRACE", address)
        assert answer.status_code == 405
        assert answer.headers["Allow"]
    assert shared_api.call("GET", "/nothing").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/x",
        "/jobs/%00",
        "/jobs/01a22b6d-cd4e-70e5-b174-fdc66ac3e7e5",
        "/jobs/x/executions",
        "/jobs/01a22b6d-cd4e-70e5-b174-fdc66ac3e7e5/executions",
        "/executions/x",
        "/executions/1796024945998509-01a22b6d-cd4e-70e5-b174-fdc66ac3e7e5",
        "/executions/999999999999999999-01a22b6d-cd4e-70e5-b174-fdc66ac3e7e5",
    ],
)
def test_what_is_not_there_is_404(shared_api: Api, path: str) -> None:
    assert shared_api.call("GET", path).status_code == 404


class TestIdempotency:
    def test_fifty_concurrent_posts_with_one_key_make_one_job(self, api: Api, connection: Connection) -> None:
        with ThreadPoolExecutor(50) as pool:
            answers = list(
                pool.map(lambda _: api.post({"parameters": {"a": 1}}, **{"Idempotency-Key": "k"}), range(50))
            )
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.text for answer in answers}) == 1
        assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
        assert count(connection, "jobs") == count(connection, "pending_executions") == 1

    def test_two_processes_with_one_key_make_one_job(self, api: Api, dsn: str, connection: Connection) -> None:
        with running_api(dsn) as other, ThreadPoolExecutor(20) as pool:
            answers = list(
                pool.map(lambda n: (api, other)[n % 2].post({}, **{"Idempotency-Key": f"k{n // 2 % 5}"}), range(100))
            )
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.text for answer in answers}) == count(connection, "jobs") == 5

    def test_the_first_answer_comes_again_later(self, shared_api: Api) -> None:
        job = {"schedule": "0 10 * * *", "parameters": {"b": 1, "a": 2}}
        first = shared_api.post(job, **{"Idempotency-Key": "the_first_answe"})
        again = shared_api.post(dict(reversed(job.items())), **{"Idempotency-Key": "the_first_answe"})
        assert again.status_code == 201
        assert again.json == first.json
        assert again.headers["Location"] == first.headers["Location"]
        assert again.headers["Idempotent-Replayed"] == "true"

    def test_the_first_answer_of_an_interval_has_its_times(self, api: Api) -> None:
        first = api.post({"schedule": "@every 90s"}, **{"Idempotency-Key": "k"}).json
        time.sleep(0.05)
        assert api.post({"schedule": "@every 90s"}, **{"Idempotency-Key": "k"}).json == first

    def test_the_first_answer_comes_again_when_its_times_are_past(self, api: Api, connection: Connection) -> None:
        """The schedule has ended, and the task has changed what it takes, when the client asks again."""
        end = datetime.now(UTC) + timedelta(seconds=3)
        job = {"schedule": "* * * * * *", "policies": {"end_at": rfc3339(end)}}
        batch = {"json": [{"task_id": "send_email"} | job], "headers": {"Idempotency-Key": "b"}}
        first = api.post(job, **{"Idempotency-Key": "k"})
        firsts = api.call("POST", "/jobs/batch", **batch)
        assert (first.status_code, firsts.status_code) == (201, 201)
        eventually(lambda: datetime.now(UTC) > end)
        schema = '{"type": "object", "required": ["to"]}'
        connection.execute("update pgtick.tasks set parameters_schema = %s", [schema])
        api.services.tasks.forget()
        again = api.post(job, **{"Idempotency-Key": "k"})
        assert (again.status_code, again.json) == (201, first.json)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert api.call("POST", "/jobs/batch", **batch).json == firsts.json
        assert api.post(job, **{"Idempotency-Key": "other"}).status_code == 422
        assert api.post(job | {"max_retries": 1}, **{"Idempotency-Key": "k"}).status_code == 409
        assert api.call("POST", "/jobs?dry_run=true", json=batch["json"][0]).status_code == 422
        assert count(connection, "jobs") == 2

    def test_another_spelling_of_the_address_is_the_same_request(self, api: Api, connection: Connection) -> None:
        job_id = api.created()["job_id"]
        for paths in (("/jobs", "/jobs/"), (f"/jobs/{job_id}/run", f"/jobs/{job_id.upper()}/run/")):
            body = {"json": {"task_id": "send_email"}} if paths[0] == "/jobs" else {}
            answers = [api.call("POST", path, headers={"Idempotency-Key": paths[0]}, **body) for path in paths]
            assert answers[0].status_code == answers[1].status_code in (201, 202)
            assert answers[1].headers["Idempotent-Replayed"] == "true"

    def test_a_blank_line_more_makes_no_other_batch(self, api: Api, connection: Connection) -> None:
        line = b'{"task_id": "send_email"}\n'
        for body in (line, line + b"  \n", b"\r\n" + line):
            headers = {"Idempotency-Key": "k"}
            answer = api.call("POST", "/jobs/batch", data=body, content_type="application/x-ndjson", headers=headers)
            assert answer.status_code == 201
        assert count(connection, "jobs") == 1

    def test_another_body_is_a_conflict(self, api: Api, connection: Connection) -> None:
        assert api.post({}, **{"Idempotency-Key": "k"}).status_code == 201
        assert api.post({"parameters": {"a": 1}}, **{"Idempotency-Key": "k"}).status_code == 409
        assert count(connection, "jobs") == 1

    def test_keys_of_users_are_their_own(self, api: Api, connection: Connection) -> None:
        for user_id in ("ann", "bob"):
            assert api.post({"user_id": user_id}, **{"Idempotency-Key": "k"}).status_code == 201
        assert count(connection, "jobs") == 2

    def test_a_refused_body_does_not_use_up_its_key(self, shared_api: Api) -> None:
        assert shared_api.post({"max_retries": -1}, **{"Idempotency-Key": "a_refused_body_"}).status_code == 422
        assert shared_api.post({}, **{"Idempotency-Key": "a_refused_body_"}).status_code == 201

    @pytest.mark.parametrize("key", ["", "a b", "x" * 256, "é"])
    def test_a_key_that_is_none_is_refused(self, shared_api: Api, key: str) -> None:
        assert shared_api.post({}, **{"Idempotency-Key": key}).status_code == 400

    def test_a_batch_has_keys_too(self, api: Api, connection: Connection) -> None:
        jobs = [{"task_id": "send_email"}] * 3
        first, again = (api.call("POST", "/jobs/batch", json=jobs, headers={"Idempotency-Key": "k"}) for _ in range(2))
        assert first.json == again.json
        assert count(connection, "jobs") == 3


class TestTogether:
    def test_concurrent_posts_are_all_made(self, api: Api, connection: Connection) -> None:
        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda n: api.post({"parameters": {"n": n}}), range(300)))
        assert {answer.status_code for answer in answers} == {201}
        made = {(job["job_id"], job["parameters"]["n"]) for answer in answers if (job := answer.json)}
        rows = connection.execute("select job_id::text, (parameters ->> 'n')::int from pgtick.jobs").fetchall()
        assert made == set(rows)
        assert len(made) == 300

    def test_one_that_the_database_refuses_fails_alone(self, api: Api, connection: Connection) -> None:
        # Known to this process when checked, and gone when written: only the database can tell.
        assert api.post({"task_id": "make_report"}).status_code == 201
        connection.execute("delete from pgtick.tasks where task_id = 'make_report'")
        tasks = ["make_report" if n % 10 == 5 else "send_email" for n in range(60)]
        api.services.tasks.forget = lambda: None  # type: ignore[method-assign]
        with ThreadPoolExecutor(60) as pool:
            answers = list(pool.map(lambda task: api.post({"task_id": task}), tasks))
        assert [answer.status_code for answer in answers] == [422 if task == "make_report" else 201 for task in tasks]
        assert count(connection, "jobs") == 1 + tasks.count("send_email")

    def test_a_commit_that_went_unseen_is_recognised(self, api: Api, connection: Connection) -> None:
        """The connection dies after the commit and before its answer: the job is there, and is there once."""
        real = api.services.pool._try
        lost = []

        def lose_first(work: Any, deadline: float) -> Any:
            answer = real(work, deadline)
            if not lost and count(connection, "jobs"):
                lost.append(True)
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            return answer

        api.services.pool._try = lose_first  # type: ignore[method-assign]
        job = api.created()
        assert lost
        assert count(connection, "jobs") == count(connection, "pending_executions") == 1
        assert api.get(f"/jobs/{job['job_id']}")["created_at"] == job["created_at"]


class TestBatch:
    def test_an_array_is_made_in_one_go(self, api: Api, connection: Connection) -> None:
        jobs = [{"task_id": "send_email", "parameters": {"n": n}, "user_id": f"u{n % 3}"} for n in range(MAX_BATCH)]
        answer = api.call("POST", "/jobs/batch", json=jobs)
        assert answer.status_code == 201
        assert answer.json is not None
        assert answer.json["created"] == MAX_BATCH
        rows = connection.execute("select job_id::text, (parameters ->> 'n')::int from pgtick.jobs").fetchall()
        assert dict(rows) == {job_id: n for n, job_id in enumerate(answer.json["job_ids"])}
        assert count(connection, "pending_executions") == MAX_BATCH
        assert count(connection, "users") == 3

    def test_lines_are_made_as_an_array_is(self, api: Api, connection: Connection) -> None:
        lines = "\n".join(
            json.dumps({"task_id": "send_email", "schedule": schedule}) for schedule in ("now", "@hourly")
        )
        answer = api.call("POST", "/jobs/batch", data=lines, content_type="application/x-ndjson")
        assert answer.status_code == 201
        assert (count(connection, "pending_executions"), count(connection, "schedules")) == (1, 1)

    def test_every_invalid_item_is_listed_and_nothing_is_made(self, api: Api, connection: Connection) -> None:
        good = {"task_id": "send_email"}
        jobs: list[Any] = [good, {"task_id": "nope", "max_retries": -1}, good, 7, {**good, "schedule": "x"}, good]
        answer = api.call("POST", "/jobs/batch", json=jobs)
        assert answer.status_code == 422
        assert answer.json is not None
        assert [(error["index"], error["pointer"]) for error in answer.json["errors"]] == [
            (1, "/1/max_retries"),
            (1, "/1/task_id"),
            (3, "/3"),
            (4, "/4/schedule"),
        ]
        assert count(connection, "jobs") == 0

    @pytest.mark.parametrize("body", ["[]", "{}", '"x"', json.dumps([{"task_id": "send_email"}] * (MAX_BATCH + 1))])
    def test_what_is_no_batch_is_refused(self, shared_api: Api, body: str) -> None:
        answer = shared_api.call("POST", "/jobs/batch", data=body, content_type="application/json")
        assert answer.status_code == 422
        assert answer.json is not None
        assert [error["pointer"] for error in answer.json["errors"]] == [""], "not of one of its jobs"


class TestCancelling:
    def test_a_pending_job_is_cancelled_once_and_for_all(self, shared_api: Api) -> None:
        job = shared_api.created(schedule=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
        first = shared_api.call("DELETE", f"/jobs/{job['job_id']}")
        again = shared_api.call("DELETE", f"/jobs/{job['job_id']}")
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.json == again.json
        assert first.json is not None
        assert (first.json["status"], first.json["next_runs"]) == ("CANCELLED", [])
        assert [run["status"] for run in shared_api.get(f"/jobs/{job['job_id']}/executions")["executions"]] == [
            "CANCELLED"
        ]

    @pytest.mark.parametrize("days", [None, 400])
    def test_a_standing_job_shows_as_cancelled(self, api: Api, days: int | None) -> None:
        job = api.created(schedule=(datetime.now(UTC) + timedelta(days=days)).isoformat() if days else "0 10 * * *")
        assert api.call("DELETE", f"/jobs/{job['job_id']}").status_code == 200
        assert api.get(f"/jobs/{job['job_id']}")["status"] == "CANCELLED"
        for query in ({}, {"status": "CANCELLED"}, {"user_id": "default"}):
            [listed] = api.get("/jobs", **query)["jobs"]
            assert (listed["job_id"], listed["status"]) == (job["job_id"], "CANCELLED")
        assert api.get("/jobs", status="PENDING")["jobs"] == []

    def test_a_completed_job_stays_completed(self, api: Api, connection: Connection) -> None:
        job = api.created()
        connection.execute(
            "with gone as (delete from pgtick.pending_executions returning *)"
            " insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
            " finished_at) select job_id, scheduled_at, user_id, task_key, 'COMPLETED', 1, due_at, now() from gone"
        )
        answer = api.call("DELETE", f"/jobs/{job['job_id']}")
        assert answer.status_code == 200
        assert answer.json is not None
        assert answer.json["status"] == "COMPLETED"
        assert [listed["status"] for listed in api.get("/jobs")["jobs"]] == ["COMPLETED"]
        assert api.get("/jobs", status="CANCELLED")["jobs"] == []

    def test_an_unknown_job_is_404(self, shared_api: Api) -> None:
        assert shared_api.call("DELETE", "/jobs/01a22b6d-cd4e-70e5-b174-fdc66ac3e7e5").status_code == 404


class TestWakeUps:
    def test_workers_are_woken_after_the_commit_with_the_earliest_time(self, api: Api, connection: Connection) -> None:
        connection.execute(f"listen {DUE}")
        api.created()
        [woken] = connection.notifies(timeout=5, stop_after=1)
        row = connection.execute("select due_at from pgtick.pending_executions").fetchone()
        assert row is not None
        assert int(woken.payload) == int(row[0].timestamp() * 1_000_000)

    def test_nobody_is_woken_for_a_job_that_is_not_near(self, api: Api, connection: Connection) -> None:
        connection.execute(f"listen {DUE}")
        api.created(schedule=(datetime.now(UTC) + timedelta(seconds=30)).isoformat())
        api.created()
        woken = list(connection.notifies(timeout=0.3))
        assert len(woken) == 1

    def test_many_posts_make_few_wake_ups(self, api: Api, connection: Connection) -> None:
        connection.execute(f"listen {DUE}")
        began = time.monotonic()
        for _ in range(100):
            api.created()
        took = time.monotonic() - began
        woken = list(connection.notifies(timeout=0.3))
        assert 1 <= len(woken) <= BURST + took / PERIOD_S + 2


class TestPartitions:
    def test_a_post_makes_the_partitions_that_nobody_made_for_days(self, api: Api, connection: Connection) -> None:
        for (partition,) in connection.execute("select partition from pgtick.partitions").fetchall():
            connection.execute(f"drop table pgtick.{partition}")
        connection.execute(
            "update pgtick.partition_windows"
            " set from_at = date_bin(step, now() - interval '3 days', '2000-01-01 00:00Z'),"
            "     until_at = date_bin(step, now() - interval '2 days', '2000-01-01 00:00Z')"
        )
        api.created()
        assert count(connection, "pending_executions") == 1


@pytest.mark.parametrize("task_id", ["%00", "a%00b", "%20", "%0A"])
def test_what_is_no_name_of_a_task_is_not_found(shared_api: Api, task_id: str) -> None:
    assert shared_api.call("GET", f"/tasks/{task_id}").status_code == 404


def test_what_goes_too_deep_in_a_batch_is_422_at_its_place(shared_api: Api) -> None:
    deep = '{"task_id": "send_email", "parameters": ' + '{"a": ' * 5_000 + "1" + "}" * 5_001
    body = f'[{{"task_id": "send_email"}}, {deep}]'
    answer = shared_api.call("POST", "/jobs/batch", data=body, content_type="application/json")
    assert answer.status_code == 422
    assert answer.json is not None
    assert [(fault["index"], fault["pointer"]) for fault in answer.json["errors"]] == [(1, "/1/parameters")]


@pytest.mark.parametrize("query", ["m=1", "n=1&n=2", "n="])
def test_the_next_runs_are_asked_for_by_n_alone(shared_api: Api, query: str) -> None:
    job_id = shared_api.created(schedule="0 10 * * *")["job_id"]
    assert shared_api.call("GET", f"/jobs/{job_id}/next?{query}").status_code == 400


def test_an_operation_says_in_words_what_is_wrong(shared_api: Api) -> None:
    day = {"start_time": "2026-01-02T00:00:00Z", "end_time": "2026-01-01T00:00:00Z"}
    for wanted, pointer, rule in (
        ({"status": "FAILED"}, "/filter/status", "must be an array or null, not a string"),
        (day, "/filter/end_time", "must be later than start_time"),
    ):
        answer = shared_api.call("POST", "/operations", json={"action": "rerun", "filter": wanted, "dry_run": True})
        assert answer.status_code == 422
        assert answer.json is not None
        assert answer.json["errors"] == [{"pointer": pointer, "detail": rule}]
