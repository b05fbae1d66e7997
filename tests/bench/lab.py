"""The laboratory: a PostgreSQL of its own, a fresh database a scenario, real API and worker processes, and meters."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg

from app.embedded.cluster import Cluster
from tests.support.databases import CHECKOUT, Server, migrate
from tests.support.processes import DIRECT, free_port

SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "max_connections": "100"}
"""PostgreSQL's defaults but for these; fsync and synchronous_commit are on."""
WORKERS = 2
API = ("gunicorn", "-c", "python:app.gunicorn_conf")
PR_SET_PDEATHSIG = 1


class BenchError(Exception):
    """A measurement that cannot go on; the message says why."""


@dataclass(frozen=True)
class Reading:
    """What was used up to a moment: CPU seconds by part, bytes of WAL."""

    server: float
    worker: float
    api: float
    wal: int

    def __sub__(self, other: Reading) -> Reading:
        return Reading(
            self.server - other.server, self.worker - other.worker, self.api - other.api, self.wal - other.wal
        )


class Lab:
    """One scenario's database and processes. Everything it started ends with it."""

    def __init__(self, cluster: Cluster, url: str, say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.url = url
        self.say = say
        self.connection = psycopg.connect(url, autocommit=True)
        self.workers: list[psutil.Popen] = []
        self.apis: list[psutil.Popen] = []
        self.rss = 0
        self._logs: dict[int, Path] = {}

    # ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def start_workers(self, count: int = WORKERS, **environment: str) -> None:
        """Starts worker processes and waits until they are registered and their first sweeps are over."""
        before = self.value("select count(*) from pgtick.workers")
        for _ in range(count):
            self.workers.append(self._start("workers", PGTICK_TASKS="tests.bench.tasks", **environment))
        self.wait("workers", lambda: self.value("select count(*) from pgtick.workers") == before + count)
        time.sleep(1.0)

    def know_task(self) -> None:
        """Makes the task of benchmarks known where no worker does."""
        self.connection.execute(
            "insert into pgtick.tasks (task_id, target) values ('bench', 'tests.bench.tasks:bench')"
        )

    def start_api(self, module: str = "app.wsgi:app") -> str:
        """Starts gunicorn and waits until it answers; returns its address."""
        port = free_port()
        self.apis.append(self._start(*API, module, PORT=str(port)))
        address = f"http://127.0.0.1:{port}"
        self.wait("the API", lambda: _answers(f"{address}/healthz"))
        return address

    def stop_api(self) -> None:
        for process in self.apis:
            _end(process)
        self.apis.clear()

    def freeze_workers(self) -> None:
        """Has the workers stand still, so that they all begin with the same work at the same moment."""
        for process in self.workers:
            process.suspend()

    def thaw_workers(self) -> None:
        for process in self.workers:
            process.resume()

    def stop_workers(self) -> None:
        """Lets the workers drain; their last counts are in the database then."""
        for process in self.workers:
            process.terminate()
        for process in self.workers:
            process.wait(40)
        self.workers.clear()

    def close(self) -> None:
        for process in [*self.workers, *self.apis]:
            _end(process)
        self.connection.close()
        for log in self._logs.values():
            log.unlink(missing_ok=True)

    def _start(self, *arguments: str, **environment: str) -> psutil.Popen:
        handle, name = tempfile.mkstemp(prefix="pgtick-bench-", suffix=".log")
        with os.fdopen(handle, "wb") as log:
            process = psutil.Popen(
                [sys.executable, "-m", *arguments],
                cwd=CHECKOUT,
                env=os.environ | {"DATABASE_URL": self.url, "PGTICK_LOG_LEVEL": "warning"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        self._logs[process.pid] = Path(name)
        return process

    # ── waiting and asking ───────────────────────────────────────────────────────────────────────────────────────────

    def value(self, query: str, *parameters: Any) -> Any:
        """The one value that a query returns."""
        row = self.connection.execute(query, parameters).fetchone()
        return row[0] if row else None

    def wait(self, what: str, condition: Callable[[], bool], seconds: float = 60, pause: float = 0.1) -> None:
        """Waits for a condition; BenchError when a process has ended or the time is up."""
        deadline = time.monotonic() + seconds
        while not condition():
            for process in [*self.workers, *self.apis]:
                if process.poll() is not None:
                    said = self._logs[process.pid].read_text(errors="replace")[-2000:]
                    raise BenchError(f"a process ended with exit code {process.returncode}:\n{said}")
            if time.monotonic() > deadline:
                raise BenchError(f"waited {seconds:g} s for {what}\n{self._said()}")
            self.read()
            time.sleep(pause)

    def sleep_until(self, at: datetime, what: str) -> None:
        """Sleeps until a time on the database's clock, which is this machine's."""
        self.wait(what, lambda: datetime.now(UTC) >= at, (at - datetime.now(UTC)).total_seconds() + 60, pause=0.2)

    def wait_until_finished(self, jobs: int, seconds: float) -> None:
        """Waits until nothing is left to do."""

        def waiting() -> bool:
            self.say(f"{jobs} jobs, {self.remaining()} not finished")
            return self.remaining() == 0

        self.wait(f"{jobs} executions to be finished", waiting, seconds, pause=0.25)

    def settle(self) -> None:
        """Waits until what was written in bulk has come to rest: on disk, vacuumed and analyzed."""
        self.connection.execute("checkpoint")
        self.connection.execute("analyze")
        at_work = "select count(*) from pg_stat_activity where backend_type = 'autovacuum worker'"
        self.wait("autovacuum", lambda: self.value(at_work) == 0, 300, pause=0.5)

    def remaining(self) -> int:
        """Executions that are not finished, without those due in a minute or later."""
        count: int = self.value(
            "select (select count(*) from pgtick.pending_executions where due_at < now() + interval '1 minute')"
            " + (select count(*) from pgtick.running_executions)"
        )
        return count

    def _said(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-1000:] for log in self._logs.values() if log.exists())

    # ── cost of statements ───────────────────────────────────────────────────────────────────────────────────────────

    def claim_cost(self) -> tuple[int, int, float]:
        """Calls of the claim since the last time this was asked, rows they took, ms in planning and running them."""
        row = self.connection.execute(
            "select coalesce(sum(calls), 0)::int8, coalesce(sum(rows), 0)::int8,"
            " coalesce(sum(total_exec_time + total_plan_time), 0)"
            " from pg_stat_statements where query like '%%pgtick.pending_executions%%for update skip locked%%'"
            " and dbid = (select oid from pg_database where datname = current_database())"
        ).fetchone()
        assert row is not None
        self.connection.execute("select pg_stat_statements_reset()")
        return row

    # ── meters ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self) -> Reading:
        """Reads all meters."""
        self.rss = max([self.rss, *(process.memory_info().rss for process in self.workers)])
        server = self.cluster.postmaster_pid
        return Reading(
            server=_cpu_s(psutil.Process(server)) if server else 0.0,
            worker=sum(map(_cpu_s, self.workers)),
            api=sum(map(_cpu_s, self.apis)),
            wal=int(self.value("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")),
        )


class Bench:
    """The cluster that all scenarios of one run share."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self._say = say
        self._server = Server(cluster.dsn())
        self._template = self._server.create("bench_template")
        migrate(self._template)

    @contextmanager
    def lab(self, **settings: str) -> Iterator[Lab]:
        """A freshly migrated database, on a server that was restarted with these settings if there are any."""
        settings = SETTINGS | settings
        if any(self.cluster.settings.get(name) != value for name, value in settings.items()):
            self.cluster.settings.update(settings)
            self.cluster.restart()
        with self._server.database("bench_template") as url:
            lab = Lab(self.cluster, url, self._say)
            try:
                yield lab
            finally:
                lab.close()


@contextmanager
def bench(say: Callable[[str], None]) -> Iterator[Bench]:
    """A PostgreSQL of our own, as durable as in earnest."""
    say("starting PostgreSQL")
    cluster = Cluster.temporary(fsync=True, settings=SETTINGS)
    try:
        yield Bench(cluster.start(), say)
    finally:
        cluster.destroy()


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process and its children, also of those that have ended."""
    try:
        used = process.cpu_times()
        return float(sum(used[:4])) + sum(map(_cpu_s, process.children()))
    except psutil.NoSuchProcess:
        return 0.0


def _answers(url: str) -> bool:
    try:
        with DIRECT.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _end(process: psutil.Popen) -> None:
    """Ends a process of ours and what it started, for certain."""
    if process.poll() is None:
        process.resume()
        process.terminate()
        try:
            process.wait(10)
        except psutil.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
