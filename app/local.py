"""`make run`: everything on this machine, from an empty checkout to a first job COMPLETED, until Ctrl-C.

Starts the embedded PostgreSQL (or uses DATABASE_URL), migrates, and keeps the API and one worker as child processes.
Also `make psql`, `make shell` and `make wipe`, which need the same database.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what follows takes a second to load: Ctrl-C ends that at once

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy.exc import DBAPIError

from app import logs
from app.embedded import ClusterError
from app.embedded.cluster import Cluster
from app.embedded.lock import Lock
from app.embedded.programs import find_bindir
from app.errors import PgtickError
from app.settings import Settings
from app.store.connections import connect, parsed
from app.store.migrate import migrate

CHECKOUT = Path(__file__).resolve().parent.parent
STATE = CHECKOUT / ".pgtick"  # git ignores it
DATABASE = "pgtick"
EXAMPLE_TASKS = "workers.tasks.examples"
START_TIMEOUT_S = 60
KILL_AFTER_S = 10  # on top of the worker's own time to drain
PR_SET_PDEATHSIG = 1

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


class LocalError(PgtickError):
    """Something that keeps `make run` from running; the message says what to do about it."""


class StopRequested(BaseException):
    """Ctrl-C or SIGTERM came; raised only at points where leaving is clean."""


@dataclass
class Child:
    """A process of ours, in a group of its own, so that Ctrl-C reaches it once: from us."""

    name: str
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, *arguments: str) -> Child:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 (no threads)
        )
        return cls(name, process)

    def check(self) -> None:
        """Raises LocalError if the process has ended."""
        code = self.process.poll()
        if code is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise LocalError(f"The {self.name} {how}; its last lines are above.")

    def ask_to_stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def wait_or_kill(self, deadline: float) -> None:
        """Waits until the process has ended, at the latest until `deadline` (monotonic), then kills its group."""
        try:
            self.process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            say(f"The {self.name} does not stop; killing it")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


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
            job = self._post("/jobs", FIRST_JOB)
            say(f"Posted a first job, {job['job_id']}")
            self._wait_until(lambda: self._get(f"/jobs/{job['job_id']}")["status"] == "COMPLETED")
        say("The job is COMPLETED")
        print(TRY_NEXT.format(api=self.api, user=self.settings.default_user), flush=True)

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


@contextlib.contextmanager
def database() -> Iterator[str]:
    """The address of the database: DATABASE_URL's, or the embedded one's, which runs as long as the block."""
    if given := os.environ.get("DATABASE_URL"):
        say("Using the PostgreSQL of DATABASE_URL")
        yield given
        return
    STATE.mkdir(exist_ok=True)
    lock = Lock.take(STATE / "lock")
    if lock is None:
        raise LocalError("This checkout's database is in use: another `make run`, `make psql` or `make shell` goes on.")
    cluster = Cluster.at(STATE / "postgres")
    say(f"Starting PostgreSQL from {cluster.bindir}, data in {cluster.folder}")
    try:
        cluster.start()
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            known = connection.execute("select from pg_database where datname = %s", [DATABASE]).fetchone()
            if known is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
        say(f"PostgreSQL listens on 127.0.0.1:{cluster.port}")
        yield cluster.dsn(DATABASE)
    finally:
        say("Stopping PostgreSQL")
        cluster.stop()
        lock.release()


def psql() -> None:
    """Opens psql on the database, which is started for it unless it runs."""
    _in_foreground(_run_psql)


def shell() -> None:
    """Opens a shell for `pgtick …` on the database, which is started for it unless it runs."""
    _in_foreground(_run_shell)


def url() -> None:
    """Prints the address of the database, password and all, for other programs to use."""
    address = _running()
    if address is None:
        raise LocalError("This checkout's database does not run: start it with `make run`.")
    print(address)


def wipe() -> None:
    """Deletes the embedded database."""
    if not STATE.exists():
        return
    if Lock.take(STATE / "lock") is None:
        raise LocalError("The database is in use: stop `make run` first.")
    Cluster.at(STATE / "postgres").destroy()
    shutil.rmtree(STATE)
    say("The database is deleted")


def _running() -> str | None:
    """The address of a database that is there already: DATABASE_URL's, or the embedded one's while it runs."""
    if given := os.environ.get("DATABASE_URL"):
        return given
    if not (STATE / "postgres").exists():
        return None
    cluster = Cluster.at(STATE / "postgres")
    return cluster.dsn(DATABASE) if cluster.is_running() else None


def _in_foreground(program: Callable[[str], int]) -> NoReturn:
    if there := _running():
        sys.exit(program(there))
    with database() as address:
        code = program(address)
    sys.exit(code)


def _run_psql(url: str) -> int:
    """psql in the foreground, the password out of sight of `ps`; Ctrl-C is psql's."""
    address = parsed(url)
    secret = {"PGPASSWORD": str(address.pop("password"))} if "password" in address else {}
    program = shutil.which("psql") or str(Cluster.at(STATE / "postgres").bindir / "psql")
    signal.signal(signal.SIGINT, lambda number, frame: None)
    return subprocess.run([program, make_conninfo(**address)], env=os.environ | secret, check=False).returncode


def _run_shell(url: str) -> int:
    """The user's shell with DATABASE_URL set and this environment's `pgtick` on PATH; Ctrl-C is the shell's."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    with contextlib.suppress(ClusterError):
        folders.append(str(find_bindir()))  # for psql, where none is installed
    path = os.pathsep.join(folders)
    say("A shell with DATABASE_URL set and `pgtick` on PATH; `exit` leaves it")
    signal.signal(signal.SIGINT, lambda number, frame: None)
    environment = os.environ | {"DATABASE_URL": url, "PATH": path}
    return subprocess.run([os.environ.get("SHELL") or "/bin/sh"], env=environment, check=False).returncode


def _end_with_parent() -> None:
    """In a new child on Linux: be asked to stop when the parent dies, even by kill -9."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.local", description=__doc__)
    parser.add_argument("command", choices=("run", "psql", "shell", "url", "wipe"), nargs="?", default="run")
    command = parser.parse_args().command
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        settings = Settings.from_environment()
        logs.set_up(settings)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        commands = {"run": Local(settings).run, "psql": psql, "shell": shell, "url": url, "wipe": wipe}
        commands[command]()
    except (PgtickError, psycopg.Error) as error:
        sys.exit(f"error: {error}")
    except DBAPIError as error:
        sys.exit(f"error: {error.orig}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
