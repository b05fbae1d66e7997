"""The API as a test client sees it, and rows of executions in every state to list."""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import jsonschema_rs
import psycopg
from flask import Flask
from werkzeug.exceptions import HTTPException
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import TestResponse

from app.api import openapi
from app.api.application import create_app
from app.api.services import EXTENSION, Services
from app.settings import Settings


class Api:
    """Posts and gets JSON. Every error it sees must be a problem, whatever the test looks at."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self._validators: dict[str, Any] = {}

    @property
    def services(self) -> Services:
        made: Services = self.app.extensions[EXTENSION]
        return made

    def call(self, method: str, path: str, **options: Any) -> TestResponse:
        answer = self.app.test_client().open(path, method=method, **options)
        self._holds_what_it_says(answer)
        if answer.status_code >= 400:
            assert answer.mimetype == "application/problem+json"
            assert answer.json is not None
            assert answer.json["status"] == answer.status_code
            assert "Traceback" not in answer.text
            assert "pgtick." not in answer.text
        return answer

    def _holds_what_it_says(self, answer: TestResponse) -> None:
        """The answer is one that /openapi.json tells of: its status, its type and its content."""
        asked = answer.request
        try:
            endpoint, _ = self.app.url_map.bind("").match(asked.path, method=asked.method)
        except HTTPException:
            return  # no address of the API, or not with this method
        told = openapi.ENDPOINTS.get(endpoint)
        if told is None:
            return
        status = answer.status_code
        described = self._operations[endpoint]["responses"]
        assert str(status) in described, f"{endpoint} answers {status}, which is not in its description"
        [(kind, content)] = described[str(status)]["content"].items()
        assert answer.mimetype == kind
        if "json" in kind:
            place = json.dumps([endpoint, status])
            if place not in self._validators:
                schema = content["schema"] | {"components": openapi.document(self.app)["components"]}
                self._validators[place] = jsonschema_rs.validator_for(schema)
            self._validators[place].validate(answer.json)

    @functools.cached_property
    def _operations(self) -> dict[str, Any]:
        paths = openapi.document(self.app)["paths"].values()
        return {told["operationId"].replace("_", ".", 1): told for path in paths for told in path.values()}

    def get(self, path: str, **query: Any) -> Any:
        answer = self.call("GET", path, query_string=query)
        assert answer.status_code == 200, answer.text
        return answer.json

    def post(self, job: dict[str, Any] | None = None, **headers: str) -> TestResponse:
        return self.call("POST", "/jobs", json={"task_id": "send_email"} | (job or {}), headers=headers)

    def created(self, **job: Any) -> dict[str, Any]:
        answer = self.post(job)
        assert answer.status_code == 201, answer.text
        assert answer.json is not None
        return dict(answer.json)

    def pages(self, path: str, key: str, **query: Any) -> Iterator[list[dict[str, Any]]]:
        """All pages of a listing, each fetched when asked for, by following the Link header."""
        answer = self.call("GET", path, query_string=query)
        while True:
            assert answer.status_code == 200, answer.text
            assert answer.json is not None
            yield answer.json[key]
            link = answer.headers.get("Link")
            assert (link is None) == (answer.json["next_cursor"] is None)
            if link is None:
                return
            address, relation = link.split(">; ")
            assert relation == 'rel="next"'
            answer = self.call("GET", address.removeprefix("<"))


@contextmanager
def running_api(dsn: str, **settings: Any) -> Iterator[Api]:
    app = create_app(Settings(database_url=dsn, **settings))
    try:
        yield Api(app)
    finally:
        app.extensions[EXTENSION].close()


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@contextmanager
def served(app: Flask) -> Iterator[str]:
    """The address of an HTTP server of this application, in this process."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Rows:
    """Puts executions straight into the tables of their states."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._claims = itertools.count(1)
        row = connection.execute("select date_trunc('second', now()) - interval '10 minutes'").fetchone()
        assert row is not None
        self.start: datetime = row[0]

    def at(self, seconds: float) -> datetime:
        """A time, `seconds` after ten minutes ago."""
        return self.start + timedelta(seconds=seconds)

    def job(self, user_id: str = "ann", task_id: str = "send_email", expression: str | None = None) -> str:
        self._connection.execute("insert into pgtick.users (user_id) values (%s) on conflict do nothing", [user_id])
        row = self._connection.execute(
            "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, expression, run_at, created_at)"
            " values (pgtick.uuid7(), %s, %s, %s, %s, %s, %s) returning job_id::text",
            [
                user_id,
                task_id,
                "CRON" if expression else "DATE",
                expression,
                None if expression else self.start,
                self.at(-3600),
            ],
        ).fetchone()
        assert row is not None
        return str(row[0])

    def finished(self, job_id: str, seconds: float, status: str = "COMPLETED", error: str | None = None) -> None:
        at = self.at(seconds)
        self._connection.execute(
            "insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
            " started_at, finished_at, error)"
            " select j.job_id, %(at)s, j.user_id, t.task_key, %(status)s, 1, %(at)s, %(at)s, %(at)s, %(error)s"
            " from pgtick.jobs j join pgtick.tasks t using (task_id) where j.job_id = %(job_id)s",
            {"job_id": job_id, "at": at, "status": status, "error": error},
        )

    def pending(self, job_id: str, seconds: float, attempt: int = 0) -> None:
        self._connection.execute(
            "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, attempt, errors)"
            " select j.job_id, %(at)s, %(at)s, j.user_id, t.task_key, %(attempt)s, %(errors)s"
            " from pgtick.jobs j join pgtick.tasks t using (task_id) where j.job_id = %(job_id)s",
            {
                "job_id": job_id,
                "at": self.at(seconds),
                "attempt": attempt,
                "errors": '[{"attempt": 1, "error": "boom"}]' if attempt else None,
            },
        )

    def running(self, job_id: str, seconds: float) -> None:
        self._connection.execute(
            "insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key,"
            " priority, attempt, losses, suspect, worker_id, lease_expires_at)"
            " select %(claim_id)s, j.job_id, %(at)s, %(at)s, j.user_id, t.task_key, 2, 1, 0, false, 7,"
            " now() + interval '30 s'"
            " from pgtick.jobs j join pgtick.tasks t using (task_id) where j.job_id = %(job_id)s",
            {"job_id": job_id, "at": self.at(seconds), "claim_id": next(self._claims)},
        )

    def standing(self, job_id: str, seconds: float, *, paused: bool = False, problem: str | None = None) -> None:
        self._connection.execute(
            "insert into pgtick.schedules (job_id, user_id, task_key, next_run_at, expression, paused_at, problem)"
            " select j.job_id, j.user_id, t.task_key, %(at)s, j.expression, case when %(paused)s then now() end,"
            " %(problem)s from pgtick.jobs j join pgtick.tasks t using (task_id) where j.job_id = %(job_id)s",
            {"job_id": job_id, "at": self.at(seconds), "paused": paused, "problem": problem},
        )

    def finish_everything(self) -> None:
        """What a worker does, to all that is pending."""
        self._connection.execute(
            "with gone as (delete from pgtick.pending_executions returning *)"
            " insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
            " started_at, finished_at, origin)"
            " select job_id, scheduled_at, user_id, task_key, 'COMPLETED', 1, due_at, now(), now(), origin from gone"
        )
