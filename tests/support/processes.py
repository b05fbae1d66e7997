"""Real worker processes for tests: started, killed, frozen, and watched through the database and a ledger."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg
from psycopg.rows import dict_row

from app.store.connections import connect
from tests.support.databases import CHECKOUT
from tests.support.waiting import eventually

HASTY = {
    "PGTICK_LEASE_S": "2",
    "PGTICK_RENEW_S": "0.5",
    "PGTICK_JANITOR_S": "0.4",
    "PGTICK_PARTITIONS_S": "2",
    "PGTICK_DRAIN_S": "10",
}
"""Short leases and pauses, so that recovery is a matter of seconds."""


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs on loopback, whatever proxy the machine has."""


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what was set up for pgtick in it, and with `more`."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PGTICK_", "NOTIFY_"))} | more


class Ledger:
    """What tasks did, written outside the database."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, **facts: Any) -> list[dict[str, Any]]:
        """The entries with these facts, oldest first."""
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines()
        return [e for e in map(json.loads, lines) if all(e.get(name) == value for name, value in facts.items())]

    def starts(self, job_id: UUID | None = None) -> list[dict[str, Any]]:
        return [e for e in self.entries(event="started") if job_id is None or e["execution_id"].endswith(str(job_id))]


class Worker:
    """One `python -m workers`."""

    def __init__(self, dsn: str, log: Path, environment: dict[str, str]) -> None:
        self.dsn = dsn
        self.log_path = log
        self.environment = environment
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workers"],
            cwd=CHECKOUT,
            env=clean_environment(**environment, DATABASE_URL=dsn),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def name(self) -> str:
        return f"{socket.gethostname()}:{self.pid}"

    def worker_id(self) -> int | None:
        with connect(self.dsn) as connection:
            query = "select max(worker_id) from pgtick.workers where name = %s"
            row = connection.execute(query, [self.name]).fetchone()
        return row[0] if row else None

    def ready(self) -> Worker:
        """Waits until it has registered and its loops run."""
        eventually(lambda: self.says("worker_ready") or self.process.poll() is not None, timeout=30)
        assert self.process.poll() is None, self.log()
        return self

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def says(self, event: str, **facts: Any) -> list[str]:
        """The log lines of an event that have these facts."""
        words = [f"{name}={value}" for name, value in facts.items()]
        return [line for line in self.log().splitlines() if f" {event} " in line and all(w in line for w in words)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.process.terminate()

    def wait(self, timeout: float = 30) -> int:
        return self.process.wait(timeout)

    def keeper(self) -> psutil.Process:
        """Its lease keeper."""
        (keeper,) = (p for p in psutil.Process(self.pid).children() if "workers.lease_keeper" in p.cmdline())
        return keeper

    def health(self) -> dict[str, Any]:
        """Its /healthz, with the HTTP status under `status`."""
        url = f"http://127.0.0.1:{self.environment['PGTICK_HEALTH_PORT']}/healthz"
        try:
            with DIRECT.open(url, timeout=5) as answer:
                return json.load(answer) | {"status": answer.status}
        except urllib.error.HTTPError as error:
            with error:
                return json.load(error) | {"status": error.code}

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._log.close()


class Served:
    """The API as `pgtick api` serves it, on loopback."""

    def __init__(self, dsn: str) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--config", "python:app.gunicorn_conf", "app.wsgi:app"],
            cwd=CHECKOUT,
            env=clean_environment(DATABASE_URL=dsn, PORT=str(self.port)),
            stdin=subprocess.DEVNULL,
        )

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON of the answer."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with DIRECT.open(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), json.load(error)

    def healthy(self) -> bool:
        try:
            return self.call("GET", "/healthz")[0] == 200
        except OSError:
            return False


@contextmanager
def serving(dsn: str) -> Iterator[Served]:
    """An API process on that database."""
    served = Served(dsn)
    try:
        eventually(served.healthy, 60, interval=0.1)
        yield served
    finally:
        served.process.terminate()
        served.process.wait(30)


class Fleet:
    """Starts workers on one database and ends them all; their logs are printed, for a test that failed.

    `owner` is another address of the database, for the test itself: workers may be a role with fewer rights.
    """

    def __init__(self, dsn: str, folder: Path, *, owner: str | None = None) -> None:
        self.dsn = dsn
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.workers: list[Worker] = []
        self.owner = owner or dsn
        self.connection = connect(self.owner)

    def start(self, dsn: str | None = None, **settings: Any) -> Worker:
        """A worker with hasty settings and these on top, e.g. `lease_s=5`; its loops run when this returns."""
        return self.launch(dsn, **settings).ready()

    def launch(self, dsn: str | None = None, **settings: Any) -> Worker:
        given = {f"PGTICK_{name.upper()}": str(value) for name, value in settings.items() if not name.isupper()}
        verbatim = {name: str(value) for name, value in settings.items() if name.isupper()}
        environment = {
            **HASTY,
            "PGTICK_TASKS": "tests.support.tasks",
            "PGTICK_TEST_LEDGER": str(self.ledger.path),
            **given,
            **verbatim,
        }
        worker = Worker(dsn or self.dsn, self.folder / f"worker-{len(self.workers)}.log", environment)
        self.workers.append(worker)
        return worker

    def register(self) -> None:
        """Makes the tasks known, as a worker does that has come and gone."""
        worker = self.start()
        worker.terminate()
        worker.wait()

    def post(
        self, task_id: str, schedule: str = "now", parameters: dict[str, Any] | None = None, **options: Any
    ) -> UUID:
        """Creates a job by the SQL function and returns its id."""
        names = "".join(f", {name} => %({name})s" for name in options)
        query = f"select pgtick.create_job(%(task_id)s, %(schedule)s, %(parameters)s{names})"
        given = {"task_id": task_id, "schedule": schedule, "parameters": json.dumps(parameters or {}), **options}
        return self.value(query, given)

    def backlog(self, count: int, apart_s: float) -> None:
        """Executions of one job of `tests.bench.tasks` that came due so far apart, until now."""
        query = """
            with job as (
                insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, run_at)
                values (pgtick.uuid7(), 'default', 'bench', 'NOW', now())
                returning job_id
            )
            insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)
            select job_id, now() - n * %(apart)s, now() - n * %(apart)s, 'default',
                   (select task_key from pgtick.tasks where task_id = 'bench')
            from job, generate_series(1, %(count)s) as n"""
        self.connection.execute(query, {"count": count, "apart": timedelta(seconds=apart_s)})

    def value(self, query: str, parameters: Any = None) -> Any:
        row = self.connection.execute(query, parameters).fetchone()
        return row[0] if row else None

    def change_tables(self, statement: str) -> None:
        """What somebody does to the tables by hand beside workers, and does again after a deadlock.

        Workers lock a partition and its parent in the other order; one of the two has to yield.
        """

        def done() -> bool:
            try:
                self.connection.execute(statement)
            except psycopg.errors.DeadlockDetected:
                return False
            return True

        eventually(done)

    def executions(self, job_id: UUID) -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            query = "select * from pgtick.executions where job_id = %s order by scheduled_at"
            return cursor.execute(query, [job_id]).fetchall()

    def execution(self, job_id: UUID) -> dict[str, Any]:
        """The job's only execution."""
        (execution,) = self.executions(job_id)
        return execution

    def status(self, job_id: UUID) -> str:
        return self.execution(job_id)["status"]

    def until(self, job_id: UUID, status: str, timeout: float = 30) -> dict[str, Any]:
        """The job's execution once it has that status."""

        def found() -> dict[str, Any] | None:
            execution = self.execution(job_id)
            return execution if execution["status"] == status else None

        try:
            return eventually(found, timeout)
        except AssertionError:
            raise AssertionError(f"not {status} within {timeout} s: {self.executions(job_id)}") from None

    def eventually(self, query: str, parameters: Any = None, timeout: float = 30) -> Any:
        """The first truthy value of a query."""
        return eventually(lambda: self.value(query, parameters), timeout, interval=0.05)

    def until_started(self, job_id: UUID, times: int = 1, timeout: float = 30) -> list[dict[str, Any]]:
        """The ledger's entries once the job was started so many times."""
        return eventually(lambda: s if len(s := self.ledger.starts(job_id)) >= times else None, timeout)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        for worker in self.workers:
            print(f"── log of {worker.log_path.stem}, pid {worker.pid} ──\n{worker.log()}")
        self.connection.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def terminate_backends(connection: psycopg.Connection[Any], where: str = "true") -> int:
    """Ends the connections of workers to this database; returns how many."""
    query = f"""
        select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and application_name like 'pgtick %' and ({where})"""
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def wait_until_blocked(connection: psycopg.Connection[Any], application_name: str) -> None:
    """Until a connection of that name waits for a lock."""
    query = "select count(*) from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
    eventually(lambda: connection.execute(query, [application_name]).fetchone()[0], 20)  # type: ignore[index]


def always(predicate: Callable[[], Any], seconds: float) -> None:
    """Asserts that something stays true for a while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert predicate()
        time.sleep(0.05)
