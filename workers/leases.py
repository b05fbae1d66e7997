"""Keeps the leases of this worker's claims, on a thread and a connection of its own.

The thread goes on while the event loop is busy or a task holds the interpreter, and until the last execution of a drain
has ended. It also says that the worker is alive, and reads the database's clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg

from app.clock import Clock
from app.events import emit
from app.settings import Settings
from app.store import queries
from app.store.connections import connect, is_retryable
from workers.execution import Execution

HUNG_AFTER_S = 10.0


class LeaseKeeper:
    """Renews every claim older than half a renewal pause; short executions end before it ever sees them."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        claims: dict[int, Execution],
        facts: Callable[[], dict[str, Any]],
        on_lost: Callable[[list[int]], object],
        on_cancel: Callable[[list[int]], object],
        on_drain: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._claims = claims
        self._facts = facts
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._on_drain = on_drain
        self._stopping = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._failures = 0
        self._sent = time.monotonic()
        self._asking = False
        self.beat = time.monotonic()
        self.problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the keeper after a last heartbeat, which the facts should say is the last."""
        self._stopping.set()
        self._thread.join(HUNG_AFTER_S)

    def free_if_hung(self) -> None:
        """Closes the connection under a call that hangs; meant to be called from another thread now and then."""
        connection = self._connection
        if self._asking and connection is not None and time.monotonic() - self._sent > HUNG_AFTER_S:
            connection.close()

    def _run(self) -> None:
        while True:
            last = self._stopping.is_set()
            self._sent = time.monotonic()
            try:
                self._asking = True
                self._tick()
            except Exception as error:
                self._failed(error)
            else:
                if self._failures:
                    emit("loop_recovered", loop="leases", failures=self._failures)
                self._failures = 0
                self.problem = None
                self.beat = time.monotonic()
            finally:
                self._asking = False
            if last:
                break
            # From sending to sending: while tasks hold the interpreter for long, every turn of this thread counts.
            pause = self._settings.renew_s if not self._failures else min(1.0, self._settings.renew_s / 4)
            self._stopping.wait(max(0.0, self._sent + pause - time.monotonic()))
        if self._connection is not None:
            self._connection.close()

    def _tick(self) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = connect(
                self._settings.database_url, application_name="pgtick leases", prepare_threshold=None
            )
        self._renew(self._connection)
        sent = time.monotonic()
        row = self._connection.execute(queries.heartbeat, self._facts()).fetchone()
        assert row is not None
        database_time, drain_requested = row
        self._clock.observe(database_time, sent, time.monotonic())
        if drain_requested:
            self._on_drain()

    def _renew(self, connection: psycopg.Connection[Any]) -> None:
        old = self._clock.now() - self._settings.renew_s / 2
        mine = [claim_id for claim_id, execution in list(self._claims.items()) if execution.claimed_at < old]
        if not mine:
            return
        lease = timedelta(seconds=self._settings.lease_s)
        kept = dict(connection.execute(queries.renew_leases, {"claims": mine, "lease": lease}).fetchall())
        lost = []
        for claim_id in mine:
            execution = self._claims.get(claim_id)
            # One whose outcome is on its way may just have been stored.
            if claim_id not in kept and execution is not None and not execution.reported:
                lost.append(claim_id)
                emit("lease_lost", execution_id=execution.execution_id, claim_id=claim_id, attempt=execution.attempt)
        if lost:
            self._on_lost(lost)
        cancelled = [claim_id for claim_id, cancel in kept.items() if cancel]
        if cancelled:
            self._on_cancel(cancelled)

    def _failed(self, error: Exception) -> None:
        self.problem = f"{type(error).__name__}: {error}".strip()
        if self._failures == 0:
            emit("database_unavailable" if is_retryable(error) else "loop_failed", loop="leases", error=error)
        self._failures += 1
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
