"""Connections for the API: one pool a process, made when first used, so after gunicorn has forked.

Work is tried again on a fresh connection until its time is up, so that a restarted or promoted server is not noticed
by clients, and a dead one is reported to them within 2 s.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from app.clock import clock
from app.events import emit
from app.store.connections import NO_SCHEMA, conninfo, is_retryable, lacks_schema, set_up

T = TypeVar("T")
Connection = psycopg.Connection[Any]

PATIENCE_S = 1.5  # answers come within 2 s, also from a busy machine
SLICE_S = 0.4
STATEMENT_TIMEOUT_MS = 10_000
CLOCK_PERIOD_S = 10.0
COMPLAINT_PERIOD_S = 5.0


# The pool warns of each failed connection; `database_unavailable` says it once.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


class Unavailable(Exception):
    """The database did not do the work in time; the same may succeed later."""


class NoSchema(Unavailable):
    """The database is not migrated, or not far enough."""


class Pool:
    """Runs work on a connection in autocommit mode. Safe to share between threads."""

    def __init__(self, url: str = "", *, max_size: int = 8) -> None:
        self._url = url
        self._max_size = max_size
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None
        self._clock_read = 0.0
        self._complained = 0.0

    def run(self, work: Callable[[Connection], T], *, patience_s: float = PATIENCE_S) -> T:
        """What `work` returns. It must bear being run again: its first run may have been committed unseen.

        Raises Unavailable after `patience_s` seconds of errors that pass by themselves, NoSchema and others at once.
        """
        deadline = time.monotonic() + patience_s
        pause = 0.01
        while True:
            try:
                return self._try(work, deadline)
            except (psycopg.Error, OSError) as error:
                if lacks_schema(error):
                    self._complain(error)
                    raise NoSchema(NO_SCHEMA) from error
                if not is_retryable(error) and not isinstance(error, PoolTimeout):
                    raise
                pause = min(pause * 2, 0.2)
                # A statement that ran into its timeout would only do so again.
                if isinstance(error, psycopg.errors.QueryCanceled) or time.monotonic() + pause > deadline:
                    self._complain(error)
                    raise Unavailable(str(error)) from error
                time.sleep(pause * random.uniform(0.5, 1))

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.close(timeout=2)
                self._pool = None

    def use(self) -> dict[str, int]:
        """How the pool is used: pool_size, pool_available (idle) and requests_waiting, all 0 before its first use."""
        found = self._pool.get_stats() if self._pool is not None else {}
        return {name: found.get(name, 0) for name in ("pool_size", "pool_available", "requests_waiting")}

    def connection_string(self) -> str:
        return conninfo(self._url or None, tcp_user_timeout="2000")

    def _try(self, work: Callable[[Connection], T], deadline: float) -> T:
        pool = self._pool or self._open()
        # In slices: each asks the pool anew to connect, which it stops trying soon by itself.
        connection = pool.getconn(timeout=min(SLICE_S, max(0.05, deadline - time.monotonic())))
        try:
            if time.monotonic() - self._clock_read > CLOCK_PERIOD_S:
                self._read_clock(connection)
            return work(connection)
        except (psycopg.Error, OSError) as error:
            if is_retryable(error) and not isinstance(error, psycopg.errors.QueryCanceled):
                # Also those that still look well: the server may have become a standby (25006) or be going down.
                connection.close()
            raise
        finally:
            pool.putconn(connection)  # the pool replaces a closed one

    def _open(self) -> ConnectionPool[Connection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.connection_string(),
                    kwargs={"autocommit": True},
                    min_size=1,
                    max_size=self._max_size,
                    configure=_configure,
                    max_idle=60,
                    max_lifetime=1800,
                    # The pool's own back-off starts at 1 s and doubles: it would miss a server that is back.
                    reconnect_timeout=0.2,
                    name="pgtick-api",
                    open=True,
                )
            return self._pool

    def _read_clock(self, connection: Connection) -> None:
        self._clock_read = time.monotonic()
        sent = time.monotonic()
        row = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
        assert row is not None
        clock.observe(row[0], sent, time.monotonic())

    def _complain(self, error: BaseException) -> None:
        # Once for all the requests that suffer from it.
        if time.monotonic() - self._complained > COMPLAINT_PERIOD_S:
            self._complained = time.monotonic()
            emit("database_unavailable", error=error)


def _configure(connection: Connection) -> None:
    if set_up(connection, {"statement_timeout": str(STATEMENT_TIMEOUT_MS)}):
        connection.prepare_threshold = None  # what is prepared would be other clients', too
