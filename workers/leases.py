"""Keeps the leases of this worker's claims, on a thread and a connection of its own.

The thread goes on while the event loop is busy, and until the last execution of a drain has ended. While a task holds
the interpreter it gets a turn only now and then, so it does all in one round trip: renews, says that the worker is
alive, and reads the database's clock.
"""

from __future__ import annotations

import contextlib
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
from app.store.connections import connect, cut, is_retryable
from workers.execution import Execution

HUNG_AFTER_S = 10.0
"""A call that takes longer, or a third of a lease, is ended."""


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
        on_revoke: Callable[[list[int]], object],
        on_drain: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._claims = claims
        self._facts = facts
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._on_revoke = on_revoke
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

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def free_if_hung(self) -> None:
        """Ends a call that hangs; meant to be called from another thread now and then."""
        connection = self._connection
        longest = min(HUNG_AFTER_S, self._settings.lease_s / 3)
        if self._asking and connection is not None and time.monotonic() - self._sent > longest:
            cut(connection)

    def _run(self) -> None:
        while True:
            last = self._stopping.is_set()
            self._sent = time.monotonic()
            try:
                self._asking = True
                self._tick()
            except Exception as error:
                with contextlib.suppress(Exception):  # whatever comes, leases are kept
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
        now = self._clock.now()
        old = now - self._settings.renew_s / 2
        mine = {claim_id: held for claim_id, held in list(self._claims.items()) if held.claimed_at < old}
        lease = timedelta(seconds=self._settings.lease_s)
        sent = time.monotonic()
        row = self._connection.execute(
            queries.keep_alive, {**self._facts(), "claims": list(mine), "lease": lease}
        ).fetchone()
        received = time.monotonic()
        assert row is not None
        database_time, drain_requested, kept, locked, cancelled, revoked = row
        self._clock.observe(database_time, sent, received)
        for claim_id in kept:
            mine[claim_id].leased_until = now + self._settings.lease_s
        if lost := self._lost(mine, {*kept, *locked}):
            self._on_lost(lost)
        if cancelled:
            self._on_cancel(cancelled)
        if revoked:
            self._on_revoke(revoked)
        if drain_requested:
            self._on_drain()

    def _lost(self, mine: dict[int, Execution], standing: set[int]) -> list[int]:
        lost = []
        for claim_id, execution in mine.items():
            # One whose outcome is on its way may just have been stored.
            if claim_id not in standing and claim_id in self._claims and not execution.reported:
                lost.append(claim_id)
                emit("lease_lost", execution_id=execution.execution_id, claim_id=claim_id, attempt=execution.attempt)
        return lost

    def _failed(self, error: Exception) -> None:
        self.problem = f"{type(error).__name__}: {error}".strip()
        if self._failures == 0:
            emit("database_unavailable" if is_retryable(error) else "loop_failed", loop="leases", error=error)
        self._failures += 1
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
