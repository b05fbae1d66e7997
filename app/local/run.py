"""`make run`: everything on this machine, from an empty checkout to a first job COMPLETED, until Ctrl-C.

Starts the embedded PostgreSQL (or uses DATABASE_URL), migrates, and keeps the API and one worker as child processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import psycopg

from app.local import LocalError, say
from app.local.child import Child
from app.local.database import database
from app.settings import Settings
from app.store.connections import connect
from app.store.migrate import migrate

EXAMPLE_TASKS = "workers.tasks.examples"
START_TIMEOUT_S = 60
KILL_AFTER_S = 10  # on top of the worker's own time to drain

FIRST_JOB = {
    "task_id": "send_email",
    "parameters": {"to": "john@example.com", "subject": "Hello from pgtick"},
}
TRY_NEXT = """
pgtick runs at {api} — Ctrl-C stops it, and the next `make run` finds its jobs again.

Schedule a job, then see it COMPLETED (in another terminal):

  curl -s {api}/jobs -H 'Content-Type: application/json' \\
    -d '{{"task_id": "send_email", "schedule": "now",
         "parameters": {{"to": "john@example.com", "subject": "Daily Report"}}}}'

  curl -s '{api}/jobs?user_id={user}&status=COMPLETED'

Every day at ten:       "schedule": "0 10 * * *"
In psql:                make psql, then  select * from pgtick.executions;
On the command line:    make shell, then  pgtick jobs list  (DATABASE_URL is set there, for other programs, too)
"""


class StopRequested(BaseException):
    """Ctrl-C or SIGTERM came; raised only at points where leaving is clean."""


class Local:
    """One `make run`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.api = f"http://127.0.0.1:{settings.port}"
        self.children: list[Child] = []
        self.stopping = False

    def run(self) -> None:
        """Starts everything, says so, and returns after Ctrl-C or SIGTERM with everything stopped."""
        self._handle_signals()
        self._check_port()
        try:
            with database() as url:
                try:
                    self._start(url)
                    self._wait_until(lambda: False, timeout=None)
                finally:
                    self._stop_children()
        except StopRequested:
            say("Stopped")

    def _start(self, url: str) -> None:
        self._check_stop()
        say("Migrating the schema")
        os.environ["DATABASE_URL"] = url
        # The first job needs the examples, whatever else the worker is to know.
        os.environ["PGTICK_TASKS"] = ",".join(dict.fromkeys([EXAMPLE_TASKS, *self.settings.task_modules]))
        migrate(patience_s=30)
        self._check_stop()
        with connect() as connection:
            self._start_processes(connection)
        self._run_first_job()
        print(TRY_NEXT.format(api=self.api, user=self.settings.default_user), flush=True)

    def _run_first_job(self) -> None:
        if self._get(f"/tasks/{FIRST_JOB['task_id']}")["paused_at"]:
            say(f"Posted no first job: the task {FIRST_JOB['task_id']} is paused")
            return
        job = self._post("/jobs", FIRST_JOB)
        say(f"Posted a first job, {job['job_id']}")
        self._wait_until(lambda: self._get(f"/jobs/{job['job_id']}")["status"] == "COMPLETED")
        say("The job is COMPLETED")

    def _start_processes(self, connection: psycopg.Connection[Any]) -> None:
        say(f"Starting the API on {self.api} and a worker")
        since = connection.execute("select clock_timestamp()").fetchone()
        registered = "select from pgtick.workers where state = 'RUNNING' and started_at >= %s"
        serve = ["gunicorn", "--config", "python:app.gunicorn_conf", "app.wsgi:app"]
        self.children.append(Child.start("API", *serve))
        self.children.append(Child.start("worker", "workers"))
        self._wait_until(self._is_healthy)
        self._wait_until(lambda: connection.execute(registered, since).fetchone() is not None)

    def _stop_children(self) -> None:
        if self.children:
            say("Stopping the worker and the API")
        for child in reversed(self.children):
            child.ask_to_stop()
        deadline = time.monotonic() + self.settings.drain_s + KILL_AFTER_S
        for child in reversed(self.children):
            child.wait_or_kill(deadline)

    def _wait_until(self, condition: Callable[[], bool], timeout: float | None = START_TIMEOUT_S) -> None:
        started = time.monotonic()
        while not condition():
            self._check_stop()
            for child in self.children:
                child.check()
            if timeout is not None and time.monotonic() > started + timeout:
                raise LocalError(f"Not ready within {timeout} s; see the lines above.")
            time.sleep(0.1)

    def _is_healthy(self) -> bool:
        try:
            self._get("/healthz")
        except (OSError, LocalError):
            return False
        return True

    def _get(self, path: str) -> Any:
        return self._request(urllib.request.Request(self.api + path))

    def _post(self, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        return self._request(urllib.request.Request(self.api + path, json.dumps(body).encode(), headers))

    def _request(self, request: urllib.request.Request) -> Any:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=10) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                answer = error.read().decode(errors="replace")
            raise LocalError(f"{request.get_method()} {request.full_url} → {error.code}: {answer}") from None

    def _check_port(self) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.settings.port))
            except OSError as error:
                raise LocalError(
                    f"Port {self.settings.port} cannot be used ({error.strerror}). Choose another: make run PORT=8081"
                ) from None

    def _check_stop(self) -> None:
        if self.stopping:
            raise StopRequested

    def _handle_signals(self) -> None:
        def stop(number: int, frame: object) -> None:
            self.stopping = True

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
