"""The process that keeps a worker's leases: `python -m workers.lease_keeper`, started by `workers.leases`.

A process of its own, because a task may hold the interpreter of the worker for as long as it likes. It renews whatever
the database says the worker has claimed, until the worker's end of its standard input closes, or what a task has forked
holds it open but the keeper is its child no more: then the worker has died, and the keeper, who knows it first, says
so. A worker that was stopped (SIGSTOP, a debugger) does no work: its leases are left to run out.

Lines of JSON come in, with what changed of the worker's facts, each second at least: when none does, a task blocks the
worker's event loop, which only the keeper can tell others. One line goes out after each round.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from app import logs
from app.events import emit
from app.settings import Settings
from app.store import queries
from app.store.connections import connect, cut, is_retryable
from workers import guards

HUNG_AFTER_S = 10.0
"""A round that takes longer, or a third of a lease, loses its connection."""
BLOCKED_AFTER_S = 5.0
"""A worker that has said nothing for so long is blocked."""
READINGS = 3
"""Of the database's clock in a round; the tightest counts, as each is as wrong as its round trip is long."""
CHILDREN_DIE_S = 0.2
"""The worker's children die with it, a moment later."""
BURIAL_S = 30.0
"""A keeper whose worker has died tries for so long to say so."""


class Answers:
    """Writes answers to the worker. While it does not read, because a task holds it, only the newest waits.

    Each repeats all that still counts, so none is missed. Renewing never waits for the worker: its pipe holds a few
    rounds of a thousand claims.
    """

    def __init__(self) -> None:
        self._newest: queue.Queue[dict[str, Any]] = queue.Queue(maxsize=1)
        threading.Thread(target=self._write, daemon=True).start()

    def give(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(queue.Empty):
            self._newest.get_nowait()
        self._newest.put(answer)

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the worker has just ended
            while True:
                sys.stdout.write(json.dumps(self._newest.get()) + "\n")
                sys.stdout.flush()


class Keeper:
    """Rounds, each `renew_s` after the one before; sooner after a failure, or when the worker has something to say."""

    def __init__(self, settings: Settings, worker_pid: int) -> None:
        self._settings = settings
        self._limit_s = min(HUNG_AFTER_S, settings.lease_s / 3)
        self._worker_pid = worker_pid
        self._facts: dict[str, Any] = {}
        self._told = threading.Event()
        self._heard_at = time.monotonic()
        self._blocked = False
        self._over = False
        self._busy = threading.Lock()
        self._answers = Answers()
        self._connection: psycopg.Connection[Any] | None = None
        self._keeping_since: float | None = None

    def run(self) -> None:
        # All threads there will be: a task that takes every one the system has must not keep leases from being kept.
        for work in (self._listen, self._cut_what_hangs):
            threading.Thread(target=work, daemon=True).start()
        while not self._told.wait(self._settings.renew_s) and not self._is_orphan():
            pass
        while not self._over:
            if self._is_orphan():
                self._bury()
                os._exit(0)
            self._told.clear()
            started = time.monotonic()
            pause = self._settings.renew_s
            if not is_stopped(self._worker_pid):
                answer = self._round()
                if "problem" in answer:
                    pause = min(1.0, pause / 4)
                self._answers.give(answer)
                if self._blocked and self._connection is not None:
                    self._look_for_findings(self._connection)
            self._told.wait(max(0.0, started + pause - time.monotonic()))
        self._round()  # the last word: STOPPED
        os._exit(0)

    def _listen(self) -> None:
        for line in sys.stdin:
            if not line.endswith("\n"):
                break  # it was killed in the middle of it
            self._heard_at = time.monotonic()
            if news := json.loads(line):
                self._facts.update(news)
                self._over = self._facts["state"] == "STOPPED"
                self._told.set()
        if not self._over:
            self._bury()
            os._exit(0)

    def _is_orphan(self) -> bool:
        return os.getppid() != self._worker_pid

    def _bury(self) -> None:
        """The worker has died, and nobody else knows it yet: what it had claimed need not wait for its lease."""
        time.sleep(CHILDREN_DIE_S)
        if not self._busy.acquire(timeout=BURIAL_S):
            return
        deadline = time.monotonic() + BURIAL_S
        while time.monotonic() < deadline:
            try:
                with (
                    connect(self._settings.database_url, application_name="pgtick leases") as connection,
                    connection.transaction(),
                ):
                    connection.execute("set local lock_timeout = '2s'")
                    row = connection.execute(queries.bury_worker, self._facts).fetchone()
            except Exception as error:
                if not is_retryable(error):
                    return  # its leases run out
                time.sleep(0.5)
                continue
            assert row is not None
            emit("worker_died", worker_id=self._facts["worker_id"], ahead=row[0], begun=row[1])
            return

    def _round(self) -> dict[str, Any]:
        with self._busy:
            return self._guarded_round()

    def _guarded_round(self) -> dict[str, Any]:
        try:
            if self._connection is None or self._connection.closed:
                # A backend waits for a lock on when its client has gone: those of many rounds would add up.
                patience = {"lock_timeout": f"{self._limit_s / 2 * 1000:.0f}ms"}
                self._connection = connect(self._settings.database_url, patience, application_name="pgtick leases")
            return self._keep(self._connection)
        except Exception as error:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(Exception):
                    connection.close()
            problem = f"{type(error).__name__}: {error}".strip()
            return {"problem": problem, "retryable": is_retryable(error)}

    def _keep(self, connection: psycopg.Connection[Any]) -> dict[str, Any]:
        lease = timedelta(seconds=self._settings.lease_s)
        renew = timedelta(seconds=self._settings.renew_s)
        try:
            sent = self._keeping_since = time.monotonic()
            facts = {**self._facts, "lease": lease, "renew": renew, "blocked_s": self._blocked_s()}
            row = connection.execute(queries.keep_alive, facts).fetchone()
            database_clock = read_clock(connection)
        finally:
            self._keeping_since = None
        assert row is not None
        names = ("drain", "standing", "cancelled", "revoked")
        return {**dict(zip(names, row, strict=True)), "sent": sent, "clock": database_clock}

    def _cut_what_hangs(self) -> None:
        while True:
            time.sleep(self._limit_s / 8)
            since, connection = self._keeping_since, self._connection
            if since is not None and connection is not None and time.monotonic() - since > self._limit_s:
                cut(connection)

    def _look_for_findings(self, connection: psycopg.Connection[Any]) -> None:
        """In place of the worker's janitor, which comes round no more than the rest of it."""
        with contextlib.suppress(psycopg.Error):  # leases matter more
            guards.say(connection.execute(queries.findings, guards.wanted(self._settings)).fetchall())

    def _blocked_s(self) -> float | None:
        """For how long the worker's event loop has not come round, in seconds; None while it does."""
        silent_s = time.monotonic() - self._heard_at
        blocked = silent_s > BLOCKED_AFTER_S
        if blocked != self._blocked:
            self._blocked = blocked
            emit("worker_blocked" if blocked else "worker_unblocked", worker_id=self._facts["worker_id"])
        return silent_s if blocked else None


def read_clock(connection: psycopg.Connection[Any]) -> tuple[float, float, float]:
    """The database's time, and when it was asked and had answered by this host's monotonic clock."""
    readings = []
    for _ in range(READINGS):
        asked = time.monotonic()
        row = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
        assert row is not None
        readings.append((row[0], asked, time.monotonic()))
    return min(readings, key=lambda reading: reading[2] - reading[1])


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, where the system tells."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def main() -> None:
    # A drain goes on until the worker says that it is over.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    settings = Settings.from_environment()
    logs.set_up(settings)
    Keeper(settings, int(sys.argv[1])).run()


if __name__ == "__main__":
    main()
