"""Wakes workers for jobs that are due now: few NOTIFYs, however many jobs were posted.

NOTIFY takes a lock of the whole server at commit; inside each inserting transaction it would serialise them all. So
one goes along with a transaction only where none has gone lately, and the others go after the commits, together.
"""

from __future__ import annotations

import threading
import time

import psycopg

from app.clock import clock
from app.store.channel import DUE, PLAN
from app.store.connections import connect
from app.store.pool import Pool

PERIOD_S = 0.02
BURST = 5
NEAR_S = 1.0


class Notifier:
    """One thread a process, started when first needed.

    Wake-ups go at once while there are few, and together where there are many: 50 a second at most, after a first five.
    """

    def __init__(self, pool: Pool) -> None:
        self._url = pool.connection_string
        self._wake = threading.Condition()
        self._earliest: int | None = None
        self._plan = False
        self._thread: threading.Thread | None = None
        self._closed = False
        self._paid_until = 0.0
        """Each wake-up is paid for with 20 ms, up to five of them ahead."""

    def rides(self) -> bool:
        """Whether a wake-up may go along with the transaction about to commit: few have gone lately, and none waits."""
        with self._wake:
            if self._earliest is not None or self._pause_s() > 0:
                return False
            self._pay()
            return True

    def due(self, due_at_us: int, *, plan: bool = False) -> None:
        """Some job is due then, in µs since the epoch; `plan`: by a schedule, too. Returns at once."""
        if due_at_us > (clock.now() + NEAR_S) * 1_000_000:
            return
        with self._wake:
            waiting = self._earliest
            self._earliest = due_at_us if waiting is None else min(waiting, due_at_us)
            self._plan = self._plan or plan
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)
                self._thread.start()
            elif waiting is None:
                self._wake.notify()

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        connection: psycopg.Connection | None = None
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._earliest is not None)
                if self._closed:
                    break
            time.sleep(max(0.0, self._pause_s()))
            with self._wake:
                earliest, self._earliest = self._earliest, None
                plan, self._plan = self._plan, False
                self._pay()
            try:
                connection = connection or connect(self._url())
                with connection.transaction():
                    # A wake-up is worth no wait for the disk.
                    connection.execute("set local synchronous_commit = off")
                    connection.execute("select pgtick.tell(%s, %s)", [DUE, str(earliest)])
                    if plan:
                        connection.execute("select pgtick.tell(%s, '')", [PLAN])
            except (psycopg.Error, OSError):
                # Workers poll anyway: a lost wake-up costs at most their polling time, a late one is worth nothing.
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _pause_s(self) -> float:
        return self._paid_until - (BURST - 1) * PERIOD_S - time.monotonic()

    def _pay(self) -> None:
        self._paid_until = max(self._paid_until, time.monotonic()) + PERIOD_S
