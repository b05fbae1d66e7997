"""The one loop that all of a worker's loops are: tick, sleep as long as the tick says, survive every database error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import psycopg

from app.clock import Clock
from app.events import emit
from app.store.borrowed import LENT, Connection
from app.store.connections import POOLED, SESSION, STYLE, assignments, conninfo, cut, is_retryable, known_to

FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 2.0
PATIENCE = {"lock_timeout": "3s", "idle_in_transaction_session_timeout": "10s"}
"""Shorter than the time of a tick: a backend waits for a lock on when its client has gone, and these would add up. And
a worker that was stopped in the middle of planning must not keep others from the schedules it has locked.
"""
SAY_AGAIN_S = 60.0
"""A loop that keeps failing in the same way says so again after that time."""


class Link:
    """One connection for one loop, opened when needed and replaced when broken.

    `settings` hold for each statement: for the session, or behind a pooler for each transaction. `prepares`: statements
    are parsed once a connection, which a third of an empty claim goes into; they are planned each time all the same,
    for the partitions of the moment, unless the loop has it otherwise. Behind a pooler nothing is prepared.
    """

    def __init__(
        self, name: str, url: str, settings: Mapping[str, str] = MappingProxyType({}), *, prepares: bool = False
    ) -> None:
        self._settings = {**PATIENCE, **settings}
        self._prepares = prepares
        self._url = url
        self._conninfo = conninfo(url, application_name=f"pgtick {name}")
        self._connection: Connection | None = None
        self.pooled = False

    async def connection(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.connect(self._conninfo, autocommit=True, prepare_threshold=None)
            await self._set_up(self._connection)
        return self._connection

    async def _set_up(self, connection: Connection) -> None:
        asked = await connection.execute(POOLED, [connection.info.backend_pid])
        self.pooled = await asked.fetchone() == (True,)
        session = {} if self.pooled else {**known_to(connection, SESSION), **self._settings}
        await connection.execute(assignments({**STYLE, **session}))
        if self.pooled:
            connection.borrow(assignments({**known_to(connection, LENT), **self._settings}, "set local"))
        if self.prepares:
            connection.prepare_threshold = 0

    @property
    def prepares(self) -> bool:
        """Whether statements are prepared and settings hold for the session."""
        return self._prepares and not self.pooled

    def another(self, name: str) -> Link:
        """A link to the same address."""
        return Link(name, self._url)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def failed(self, error: Exception) -> None:
        """Prepares no more where the server does not know what was prepared: a pooler nobody told us of."""
        if isinstance(error, psycopg.errors.InvalidSqlStatementName | psycopg.errors.DuplicatePreparedStatement):
            self._prepares = False

    def let_go(self) -> None:
        """Closes the connection here alone, in what a task has forked: it is the worker's, and ends with that."""
        if self._connection is not None:
            with contextlib.suppress(OSError, psycopg.Error):
                os.close(self._connection.pgconn.socket)

    def cut(self) -> None:
        """Ends the connection under a call that hangs."""
        if self._connection is not None:
            cut(self._connection)


async def read_clock(connection: psycopg.AsyncConnection[Any], clock: Clock) -> None:
    """Takes in what the database's clock shows."""
    sent = time.monotonic()
    row = await (await connection.execute("select extract(epoch from clock_timestamp())::float8")).fetchone()
    assert row is not None
    clock.observe(row[0], sent, time.monotonic())


class Limit:
    """The time of one tick: after `seconds` its connection is cut, and if that does not end it, it is cancelled.

    The time is counted in steps, one after the other: while a task holds the interpreter nothing moves, and this
    does not either.
    """

    STEPS = 4

    def __init__(self, seconds: float, cut: Callable[[], None], deadline: asyncio.Timeout) -> None:
        self._loop = asyncio.get_running_loop()
        self._step_s = seconds / self.STEPS
        self._left = self.STEPS
        self._cut = cut
        self._deadline = deadline
        self._timer = self._loop.call_later(self._step_s, self._step)
        self.reached = False

    def _step(self) -> None:
        self._left -= 1
        if self._left > 0:
            self._timer = self._loop.call_later(self._step_s, self._step)
            return
        self.reached = True
        self._cut()
        self._deadline.reschedule(self._loop.time() + 1.0)

    def cancel(self) -> None:
        self._timer.cancel()


class Loop:
    """Runs `tick` until stopped. A tick returns the seconds to sleep; `wake()` ends that sleep, or the next one.

    A tick that takes longer than `limit_s` loses its connection: a server that hangs must not hang the loop. The next
    ones get more time, in case the server is merely slow.
    """

    def __init__(self, name: str, tick: Callable[[], Awaitable[float]], link: Link, *, limit_s: float = 15.0) -> None:
        self.name = name
        self._tick = tick
        self._link = link
        self._limit_s = limit_s
        self._woken = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._cuts = 0
        self._said_at = float("-inf")
        self.beat = time.monotonic()
        """When it came round last, or is to do so next: monotonic seconds."""
        self.problem: str | None = None
        self.ended = False
        self.came_round = False

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Ends the loop after the tick under way."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            self.ended = not self._stopping

    async def _run(self) -> None:
        while not self._stopping:
            self._woken.clear()
            pause = await self._guarded_tick()
            if pause <= 0:
                await asyncio.sleep(0)  # others get their turn
            elif not self._woken.is_set():
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                except TimeoutError:
                    pass
        await self._link.close()

    async def _guarded_tick(self) -> float:
        try:
            async with asyncio.timeout(None) as deadline:
                limit = Limit(self._limit_s * 2.0 ** min(self._cuts, 3), self._link.cut, deadline)
                pause: float = await self._tick()
        except Exception as error:
            self._cuts += limit.reached
            longest = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(self._failures + 1, 10))
            pause = longest * random.uniform(0.5, 1.0)
            await self._failed(error, pause)
            self._failures += 1
            return pause
        finally:
            limit.cancel()
        if self._failures:
            emit("loop_recovered", loop=self.name, failures=self._failures)
        self._failures = 0
        self._cuts = 0
        self.problem = None
        self.beat = time.monotonic() + pause  # asleep until then is healthy
        self.came_round = True
        return pause

    async def _failed(self, error: Exception, pause: float) -> None:
        problem = f"{type(error).__name__}: {error}".strip()
        retryable = is_retryable(error)
        if retryable and not isinstance(error, TimeoutError):
            # Waiting for the database is healthy. A tick that went on without its connection is not, nor is one that
            # fails each time.
            self.beat = time.monotonic() + pause
        if self._failures == 0 or problem != self.problem or time.monotonic() - self._said_at > SAY_AGAIN_S:
            self._said_at = time.monotonic()
            emit("database_unavailable" if retryable else "loop_failed", loop=self.name, error=error)
        self.problem = problem
        self._link.failed(error)
        try:
            async with asyncio.timeout(1):
                await self._link.close()
        except Exception as close_error:
            emit("close_failed", loop=self.name, error=close_error)
