"""Listens for wake-ups, and notices when it has gone deaf."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import psycopg

from app.events import emit
from app.store import channel
from workers.loop import Link

ECHO_PAUSE_S = 3.0
ECHO_LIMIT_S = 2.0
_TIME_US = re.compile("[0-9]{1,17}")
"""Any role may notify anything: up to the year 5138, and no longer."""
_ID = re.compile("[0-9]{1,19}")


class Listener:
    """Passes notifications on. Every few seconds it sends itself one: silence means that its connection is no use."""

    def __init__(
        self,
        link: Link,
        worker_id: int,
        *,
        on_connect: Callable[[], None],
        on_due: Callable[[float | None], None],
        on_cancel: Callable[[list[int]], None],
        on_revoke: Callable[[list[int]], None],
        on_plan: Callable[[], None],
        on_tasks: Callable[[], None],
    ) -> None:
        self._link = link
        self._echo = f"pgtick_echo_{worker_id}"
        self._on_due = on_due
        self._on_cancel = on_cancel
        self._on_revoke = on_revoke
        self._on_connect = on_connect
        self._on_plan = on_plan
        self._on_tasks = on_tasks
        self._listening: psycopg.AsyncConnection[Any] | None = None
        self.deaf = False

    async def tick(self) -> float:
        connection = await self._link.connection()
        if connection is not self._listening:
            heard = not self._link.pooled or await self._hears_others(connection)
            if heard:
                for name in (channel.DUE, channel.CANCEL, channel.REVOKE, channel.PLAN, channel.TASKS, self._echo):
                    await connection.execute(f"listen {name}")
                self._listening = connection
                heard = await self._hears_itself(connection)
            self._on_connect()
            if not heard:
                return self._give_up()
        await self._listen(connection, ECHO_PAUSE_S)
        if not await self._hears_itself(connection):
            return self._give_up()
        if self.deaf:
            self.deaf = False
            emit("listener_recovered")
        return 0.0

    async def _hears_itself(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        # While the queue of notifications is full, nobody hears anything; that is not this connection's fault.
        return not await self._call(connection) or await self._hears_echo(connection)

    async def _hears_others(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        """Whether a pooler leaves us the server's connection for longer than a transaction.

        An echo of our own comes along with the answer in any case.
        """
        await connection.execute(f"listen {self._echo}")
        other = self._link.another("echo")
        try:
            heard = await self._call(await other.connection()) and await self._hears_echo(connection)
        finally:
            await other.close()
        if not heard:
            await connection.execute("unlisten *")
        return heard

    async def _call(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        cursor = await connection.execute("select pgtick.tell(%s, '')", [self._echo])
        return await cursor.fetchone() == (True,)

    async def _hears_echo(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        deadline = time.monotonic() + ECHO_LIMIT_S
        heard = False
        while not heard and (remaining := deadline - time.monotonic()) > 0:
            # Ends after one packet, so that what came along with the echo is passed on, too.
            heard = await self._listen(connection, remaining, stop_after=1)
        return heard

    def _give_up(self) -> float:
        """LISTEN does not work here (a transaction pooler, most likely): polling goes on, this tries again later."""
        self._listening = None
        if not self.deaf:
            self.deaf = True
            emit(
                "listener_lost",
                advice="set PGTICK_LISTEN_DATABASE_URL to a direct address; until then jobs are found by polling",
            )
        return 30.0

    async def _listen(
        self, connection: psycopg.AsyncConnection[Any], seconds: float, stop_after: int | None = None
    ) -> bool:
        """Passes on what comes within that time; returns whether the echo was among it."""
        heard = False
        async with aclosing(connection.notifies(timeout=seconds, stop_after=stop_after)) as notifications:
            async for notification in notifications:
                if notification.channel == channel.DUE:
                    self._on_due(_due_at(notification.payload))
                elif notification.channel == channel.CANCEL:
                    self._on_cancel(_claim_ids(notification.payload))
                elif notification.channel == channel.REVOKE:
                    self._on_revoke(_claim_ids(notification.payload))
                elif notification.channel == channel.PLAN:
                    self._on_plan()
                elif notification.channel == channel.TASKS:
                    self._on_tasks()
                elif notification.channel == self._echo:
                    heard = True
        return heard


def _due_at(payload: str) -> float | None:
    """Seconds since the epoch; None for what is no time, which is heard as "look at everything"."""
    return int(payload) / 1e6 if _TIME_US.fullmatch(payload) else None


def _claim_ids(payload: str) -> list[int]:
    return [int(part) for part in payload.split(",") if _ID.fullmatch(part)]
