"""What a task can say of how it ends, and of how far it is; and HTTP tasks on real workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import standardwebhooks

from app.domain.endpoint import Endpoint
from app.domain.limits import Limits
from app.domain.retry import Backoff
from app.store import endpoints
from app.store.endpoints import HttpTask
from tests.support.api import running_api
from tests.support.databases import Server
from tests.support.endpoint import Answer, receiver
from tests.support.processes import Fleet
from tests.support.waiting import eventually

MODULE = "tests.support.limited_tasks"
SECRET = "whsec_" + "QUJD" * 11


@pytest.fixture(scope="module")
def fleet(server: Server, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A database and a worker for all tests here; it may call loopback."""
    with server.database(template) as dsn:
        fleet = Fleet(dsn, tmp_path_factory.mktemp("ways"))
        try:
            fleet.start(tasks=MODULE, http_allow="127.0.0.1")
            yield fleet
        finally:
            fleet.close()


def put(fleet: Fleet, task_id: str, url: str, **options: Any) -> None:
    task = HttpTask(
        task_id=task_id,
        endpoint=Endpoint(url=url, secret=SECRET),
        description=None,
        queue="default",
        priority=2,
        max_retries=3,
        timeout_s=5,
        backoff=Backoff(base_s=60),
        limits=Limits(),
        parameters_schema=None,
    )
    endpoints.put(fleet.connection, task)


def test_a_retry_comes_when_the_task_asked_for_it(fleet: Fleet) -> None:
    execution = fleet.until(fleet.post("retry_soon"), "COMPLETED")
    assert (execution["attempt"], execution["result"]) == (2, "done")
    assert execution["errors"][0]["error"] == "not yet"


def test_a_snooze_is_not_charged(fleet: Fleet, tmp_path: Path) -> None:
    job = fleet.post("snooze_once", parameters={"path": str(tmp_path / "asleep")})
    execution = fleet.until(job, "COMPLETED")
    assert (execution["attempt"], execution["result"], execution["errors"]) == (1, "awake", None)
    first, second = fleet.ledger.starts(job)
    assert second["at"] - first["at"] > 0.25


def test_a_snooze_from_a_child_process_waits(fleet: Fleet) -> None:
    job = fleet.post("snooze_child", parameters={"seconds": 600})
    fleet.until_started(job)
    fleet.eventually("select due_at > now() + interval '9 min' from pgtick.executions where job_id = %s", [job])
    execution = fleet.execution(job)
    assert (execution["status"], execution["attempt"]) == ("PENDING", 0)


@pytest.mark.parametrize("task_id", ["give_up", "give_up_child"])
def test_a_task_can_cancel_itself(fleet: Fleet, task_id: str) -> None:
    execution = fleet.until(fleet.post(task_id), "CANCELLED")
    assert (execution["attempt"], execution["error"]) == (1, "the order is gone")


@pytest.mark.parametrize("task_id", ["leave_in_a_way", "leave_in_a_way_child"])
@pytest.mark.parametrize(
    ("way", "status", "error"),
    [
        ("snooze", "FAILED", "Snooze(…) takes seconds or a timedelta, not '1'"),
        ("reject", "FAILED", "no such order"),
        ("cancel", "CANCELLED", "no such order"),
        ("syntax", "FAILED", "SyntaxError: bad (file, line 1)"),
    ],
)
def test_whatever_a_task_raises_is_its_own_end_alone(
    fleet: Fleet, task_id: str, way: str, status: str, error: str
) -> None:
    execution = fleet.until(fleet.post(task_id, parameters={"way": way}), status)
    assert execution["error"] == error
    assert execution["attempt"] == (4 if way == "syntax" else 1)
    assert not fleet.workers[0].says("loop_failed")


@pytest.mark.parametrize(("task_id", "progress"), [("measured", {"step": "last"}), ("measured_child", 0.5)])
def test_progress_is_seen_while_it_runs(fleet: Fleet, tmp_path: Path, task_id: str, progress: Any) -> None:
    job = fleet.post(task_id, parameters={"path": str(tmp_path / "go")})
    query = "select progress from pgtick.running_executions where job_id = %s and progress = %s"
    fleet.eventually(query, [job, json.dumps(progress)], timeout=10)
    (tmp_path / "go").touch()
    fleet.until(job, "COMPLETED")


def test_a_worker_calls_a_task_that_was_registered_while_it_runs(fleet: Fleet) -> None:
    with receiver() as there:
        put(fleet, "called", there.url)
        job = fleet.post("called", parameters={"order": 7})
        execution = fleet.until(job, "COMPLETED", timeout=5)
        assert execution["result"] == {
            "status": 200,
            "content_type": "application/octet-stream",
            "body": "{}",
            "truncated": False,
        }
        (request,) = there.requests
        assert request.headers["pgtick-attempt"] == "1"
        assert standardwebhooks.Webhook(SECRET).verify(request.body, request.headers) == {"order": 7}
        put(fleet, "called", there.url + "/moved")
        eventually(lambda: fleet.post("called") and there.requests[-1].path == "/hook/moved", 5, interval=0.2)
    known = fleet.value("select task_key from pgtick.tasks where task_id = 'called'")
    assert fleet.value("select %s = any (task_keys) from pgtick.workers", [known]), "also for who looks at workers"


TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "rojo=1,congo=t61 x"}


@pytest.mark.parametrize("task_id", ["traced", "traced_thread", "traced_child"])
def test_the_trace_of_a_post_is_that_of_its_task(fleet: Fleet, task_id: str) -> None:
    with running_api(fleet.dsn) as api:
        posted = api.post({"task_id": task_id}, **TRACE).json
        without = api.created(task_id=task_id)
    assert posted is not None
    found = fleet.until(UUID(posted["job_id"]), "COMPLETED")["result"]
    assert found == {"traceparent": TRACE["traceparent"], "trace": TRACE}
    assert fleet.until(UUID(without["job_id"]), "COMPLETED")["result"] == {"traceparent": None, "trace": {}}


def test_the_trace_of_a_batch_is_that_of_each_of_its_tasks(fleet: Fleet) -> None:
    with running_api(fleet.dsn) as api:
        batch = api.call("POST", "/jobs/batch", json=[{"task_id": "traced"}] * 200, headers=TRACE)
    assert batch.json is not None
    fleet.eventually(
        "select count(*) = 200 from pgtick.finished_executions"
        " where job_id = any (%s::uuid[]) and result -> 'trace' = %s",
        [batch.json["job_ids"], json.dumps(TRACE)],
    )


def test_a_call_carries_the_trace_of_its_job(fleet: Fleet) -> None:
    with receiver() as there:
        put(fleet, "traced_call", there.url)
        with running_api(fleet.dsn) as api:
            posted = api.post({"task_id": "traced_call"}, **TRACE).json
            assert posted is not None
            fleet.until(UUID(posted["job_id"]), "COMPLETED")
            fleet.until(UUID(api.created(task_id="traced_call")["job_id"]), "COMPLETED")
        carried, bare = (request.headers for request in there.requests)
        assert {name: carried[name] for name in TRACE} == TRACE
        assert not bare.keys() & TRACE.keys()


def test_a_call_is_retried_on_500_as_retry_after_says_and_not_on_400(fleet: Fleet) -> None:
    with receiver() as there:
        there.answers[:] = [Answer(503, {"Retry-After": "1"}, b"busy"), Answer(500, {"Retry-After": "0"}), Answer(200)]
        put(fleet, "retried", there.url)
        job = fleet.post("retried")
        execution = fleet.until(job, "COMPLETED")
        assert execution["attempt"] == 3
        assert [error["error"] for error in execution["errors"]] == [
            "HTTP 503 Service Unavailable: busy",
            "HTTP 500 Internal Server Error: {}",
        ]
        assert [request.headers["pgtick-attempt"] for request in there.requests] == ["1", "2", "3"]
        assert len({request.headers["idempotency-key"] for request in there.requests}) == 1
        there.answers[:] = [Answer(400, {}, b"no such order")]
        failed = fleet.until(fleet.post("retried"), "FAILED")
        assert (failed["attempt"], failed["error"]) == (1, "HTTP 400 Bad Request: no such order")


def test_an_address_that_is_not_allowed_fails_at_once(fleet: Fleet) -> None:
    with receiver() as there:
        put(fleet, "stray", "http://169.254.169.254/latest")
        put(fleet, "led_astray", there.url)
        there.answers[:] = [Answer(307, {"Location": "http://[::1]:1/"})]
        for task_id in ("stray", "led_astray"):
            failed = fleet.until(fleet.post(task_id), "FAILED")
            assert failed["attempt"] == 1
            assert "PGTICK_HTTP_ALLOW" in failed["error"]
