"""Registering HTTP tasks, and workers that run them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.settings import Settings
from tests.support.api import Api
from workers.endpoints import Endpoints
from workers.loop import Link
from workers.registry import Task

Connection = psycopg.Connection[Any]
URL = "https://example.com/hook"


def put(api: Api, task_id: str = "hook", **body: Any) -> Any:
    return api.call("PUT", f"/tasks/{task_id}", json={"url": URL} | body)


def test_a_task_is_made_shown_and_changed_and_its_secret_told_once(api: Api, connection: Connection) -> None:
    made = put(api, headers={"Authorization": "Bearer theirs"}, description="rings a bell", rate_per_s=5)
    assert made.status_code == 201
    assert made.headers["Location"] == "/tasks/hook"
    secret = made.json["secret"]
    assert secret.startswith("whsec_")
    shown = api.get("/tasks/hook")
    assert shown["http"] == {
        "url": URL,
        "method": "POST",
        "headers": ["Authorization"],
        "expected": ["2xx"],
        "retried": ["408", "425", "429", "5xx"],
    }
    assert (shown["kind"], shown["priority"], shown["rate_per_s"], shown["served"]) == ("http", 2, 5.0, False)
    assert shown in api.get("/tasks")["tasks"]
    again = put(api, method="PUT", timeout_s=5, retried_statuses=["5xx", "409"])
    assert (again.status_code, "secret" in again.json) == (200, False)
    assert api.get("/tasks/hook")["http"]["retried"] == ["5xx", "409"]
    assert connection.execute("select secret from pgtick.task_secrets").fetchall() == [(secret,)]
    other = "whsec_" + "QUJD" * 11
    assert "secret" not in put(api, secret=other).json
    assert connection.execute("select secret from pgtick.task_secrets").fetchall() == [(other,)]
    for text in (api.call("GET", "/tasks").text, api.call("GET", "/tasks/hook").text):
        assert secret not in text
        assert other not in text
        assert "theirs" not in text
    assert api.created(task_id="hook")["task_id"] == "hook", "jobs can name it at once"


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"url": "ftp://example.com"}, ["/url"]),
        ({"url": "https://"}, ["/url"]),
        ({"url": "https://a:b@example.com"}, ["/url"]),
        ({"url": "http://127.0.0.1:5432"}, ["/url"]),
        ({"url": "http://169.254.169.254/latest"}, ["/url"]),
        ({"url": "http://localhost"}, ["/url"]),
        ({"url": "http://[::1]/"}, ["/url"]),
        ({"url": "http://example.com:x"}, ["/url"]),
        ({"url": "http://two..dots/"}, ["/url"]),
        ({"method": "TRACE", "uri": "x"}, ["/method", "/uri"]),
        (
            {"headers": {"Host": "x", "X-Fine": "y", "webhook-id": "1", "a b": "c", "X": "a\nb", "Traceparent": "x"}},
            None,
        ),
        ({"expected_statuses": ["2xx", "600"]}, ["/expected_statuses/1"]),
        ({"secret": "short", "timeout_s": 0}, ["/secret"]),
        ({"concurrency_key": "customer"}, ["/max_per_key"]),
        ({"backoff": {"base_s": -1}}, ["/backoff/base_s"]),
        ({"parameters_schema": {"type": "thing"}}, ["/parameters_schema"]),
        ({"parameters_schema": {"$ref": "http://example.com/schema"}}, ["/parameters_schema"]),
        ({"description": "a\u0000b"}, ["/description"]),
    ],
)
def test_what_is_wrong_with_a_task_is_named(shared_api: Api, body: dict[str, Any], pointers: list[str] | None) -> None:
    answer = put(shared_api, "refused", **body)
    assert answer.status_code == 422
    found = [error["pointer"] for error in answer.json["errors"]]
    if pointers is None:
        assert sorted(found) == [
            "/headers/Host",
            "/headers/Traceparent",
            "/headers/X",
            "/headers/a b",
            "/headers/webhook-id",
        ]
    elif body.get("secret"):
        assert found in (["/timeout_s"], ["/secret"])
    else:
        assert found == pointers
    assert shared_api.call("GET", "/tasks/refused").status_code == 404


def test_a_task_that_workers_register_is_not_taken_over(shared_api: Api) -> None:
    assert put(shared_api, "send_email").status_code == 409
    assert shared_api.get("/tasks/send_email")["http"] is None


def test_names_that_are_none_are_refused(shared_api: Api) -> None:
    assert put(shared_api, "a%20b").status_code == 422
    assert put(shared_api, "team/hook.v2:x").status_code == 201
    assert shared_api.get("/tasks/team/hook.v2:x")["task_id"] == "team/hook.v2:x"


SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "copies": {"type": "array", "items": {"type": "integer"}}},
    "required": ["to"],
    "additionalProperties": False,
}


def test_parameters_are_held_to_the_schema_of_the_task(api: Api) -> None:
    put(api, parameters_schema=SCHEMA)
    for parameters, pointers in (
        ({"to": "a"}, []),
        ({"to": "a", "copies": [1, 2]}, []),
        ({}, ["/parameters/to"]),
        ({"to": 1, "copies": [1, "b"]}, ["/parameters/copies/1", "/parameters/to"]),
        ({"to": "a", "cc": 1, "b~c/": 2}, ["/parameters/b~0c~1", "/parameters/cc"]),
    ):
        answer = api.post({"task_id": "hook", "parameters": parameters})
        assert answer.status_code == (422 if pointers else 201), answer.text
        assert sorted(error["pointer"] for error in (answer.json or {}).get("errors", [])) == pointers
        batch = api.call("POST", "/jobs/batch", json=[{"task_id": "hook", "parameters": parameters}])
        assert batch.status_code == (422 if pointers else 201)
        assert sorted(error["pointer"] for error in batch.json.get("errors", [])) == [f"/0{at}" for at in pointers]
    job = api.created(task_id="hook", parameters={"to": "a"}, schedule="0 0 1 1 *")
    answer = api.call("PATCH", f"/jobs/{job['job_id']}", json={"parameters": {"to": 5}})
    assert [error["pointer"] for error in answer.json["errors"]] == ["/parameters/to"]


def test_a_task_that_takes_more_now_is_believed_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, parameters_schema=SCHEMA)
    assert api.post({"task_id": "hook", "parameters": {"new": 1}}).status_code == 422
    # Another process changes it: this one has it in mind as it was.
    monkeypatch.setattr(api.services.tasks, "forget", lambda: None)
    monkeypatch.setattr("app.store.tasks.SHORT_LIFE_S", 0.0)
    put(api, parameters_schema=None)
    assert api.post({"task_id": "hook", "parameters": {"new": 1}}).status_code == 201


def test_a_task_that_somebody_has_spoilt_by_hand_keeps_workers_from_none_of_the_others(
    api: Api, dsn: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    for task_id in ("no_method", "no_expected", "no_list", "hook"):
        put(api, task_id)
    for task_id, options in (
        ("no_method", {}),
        ("no_expected", {"method": "GET"}),
        ("no_list", {"method": "GET", "expected": 5}),
    ):
        connection.execute("update pgtick.tasks set options = %s where task_id = %s", [Jsonb(options), task_id])
    known: dict[int, Task] = {}

    async def tick() -> None:
        def learn(endpoints: dict[int, Task]) -> list[int]:
            known.update(endpoints)
            return list(endpoints)

        await Endpoints(Settings(database_url=dsn), Link("tasks", dsn), 1, learn).tick()

    with caplog.at_level(logging.ERROR, logger="pgtick"):
        asyncio.run(tick())
    assert [task.task_id for task in known.values()] == ["hook"]
    assert [record.getMessage() for record in caplog.records] == ["task_unreadable"] * 3
