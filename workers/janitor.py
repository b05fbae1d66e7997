"""Keeps house: recovers what dead workers left, makes and drops partitions, watches over the database."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg

from app.clock import Clock
from app.events import emit
from app.settings import Settings
from app.store import queries
from app.store.connections import is_retryable
from workers.execution import Execution
from workers.guards import Guards
from workers.loop import Link, read_clock
from workers.retention import Retention

RECOVER_BATCH = 1000
OPERATION_BATCH = 500
OPERATION_BATCHES = 10
MANY_PARTITIONS = 24
"""When so many were made, there may be more to be made: those of a time without anybody come back a day at a time."""


class Janitor:
    """Every worker runs one; they share the work by skipping what another has locked."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        link: Link,
        worker_id: int,
        claims: dict[int, Execution],
        wake_claimer: Callable[[], None],
        under_way: Callable[[], range] = lambda: range(0),
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._link = link
        self._worker_id = worker_id
        self._claims = claims
        self._wake_claimer = wake_claimer
        self._under_way = under_way
        self._guards = Guards(settings, link)
        self._retention = Retention(settings)
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._judge_from = 0.0
        self._unknown: set[int] = set()
        self._partitions_at = 0.0

    async def tick(self) -> float:
        """Does every chore; the fault of one does not keep the others from being done."""
        await self._notice_outage()
        faults: list[psycopg.Error] = []
        for chore in (
            self.keep_partitions,
            self.recover,
            self.hand_back,
            self.settle_waiting,
            self.free_unlimited,
            self.operate,
            self.retire,
            self._guards.look,
            self._retention.look,
        ):
            await self._do(chore, faults)
        if faults:
            raise faults[0]
        return self._settings.janitor_s * random.uniform(0.8, 1.2)

    async def _do(self, chore: Callable[[], Awaitable[None]], faults: list[psycopg.Error]) -> None:
        try:
            await chore()
        except psycopg.Error as error:
            # Without a connection there is nothing to go on with.
            if is_retryable(error) and not isinstance(error, psycopg.errors.LockNotAvailable):
                raise
            faults.append(error)

    async def _notice_outage(self) -> None:
        """After this worker was cut off, others may have been, too: they get time to renew before they are judged."""
        connection = await self._link.connection()
        if self._connection is not None and connection is not self._connection:
            self._judge_from = time.monotonic() + 2 * self._settings.renew_s
        self._connection = connection

    async def recover(self) -> None:
        """Takes executions back from expired claims."""
        # Set ahead, the database's clock ends every lease at once: workers get time to renew theirs by it.
        await read_clock(await self._link.connection(), self._clock)
        if time.monotonic() < max(self._judge_from, self._clock.set_at + 2 * self._settings.renew_s):
            return
        try:
            while await self._recover() == RECOVER_BATCH:
                pass
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            await self._recover_each()

    async def _recover_each(self) -> None:
        """Takes executions back one by one: one that cannot be must not hold up the others."""
        connection = await self._link.connection()
        cursor = await connection.execute(queries.expired_claims, {"n": RECOVER_BATCH})
        for (claim_id,) in await cursor.fetchall():
            try:
                await self._recover(claim_id)
            except psycopg.Error as error:
                if is_retryable(error):
                    raise
                emit("lease_unrecoverable", claim_id=claim_id, error=error)

    async def _recover(self, only: int | None = None) -> int:
        connection = await self._link.connection()
        grace = timedelta(seconds=2 * self._settings.renew_s)
        cursor = await connection.execute(queries.recover_expired, {"n": RECOVER_BATCH, "grace": grace, "only": only})
        recovered = 0
        for worker_id, count, some_claims in await cursor.fetchall():
            emit("leases_recovered", worker_id=worker_id, executions=count, claim_ids=some_claims)
            recovered += count
        if recovered:
            self._wake_claimer()
        return recovered

    async def hand_back(self) -> None:
        """Hands back claims of this worker that it has not known of for two rounds: nobody runs them.

        Those that the claimer still waits for are its own to run or to hand back, however long that takes.
        """
        connection = await self._link.connection()
        facts = {"worker_id": self._worker_id, "known": list(self._claims)}
        found = {row[0] for row in await (await connection.execute(queries.unknown_claims, facts)).fetchall()}
        unknown = self._unknown & (found - self._claims.keys() - set(self._under_way()))
        self._unknown = found - unknown
        if unknown:
            cursor = await connection.execute(queries.release, {"claims": sorted(unknown), "due": []})
            emit("claims_handed_back", executions=len(await cursor.fetchall()))
            self._wake_claimer()

    async def settle_waiting(self) -> None:
        """Sees to executions that wait for a run whose worker died before it could say that it was over."""
        connection = await self._link.connection()
        await connection.execute(queries.settle_waiting, {"job_ids": None})

    async def free_unlimited(self) -> None:
        """Lets go what came in for a task while its limits were being lifted."""
        connection = await self._link.connection()
        cursor = await connection.execute("select pgtick.free_unlimited()")
        if (await cursor.fetchone() or [0])[0]:
            self._wake_claimer()

    async def operate(self) -> None:
        """Goes on with what was asked for many executions, a few batches at a time."""
        connection = await self._link.connection()
        for _ in range(OPERATION_BATCHES):
            cursor = await connection.execute("select pgtick.operate(%s)", [OPERATION_BATCH])
            if not (await cursor.fetchone() or [False])[0]:
                break

    async def retire(self) -> None:
        connection = await self._link.connection()
        await connection.execute(queries.retire_workers, {"silent": timedelta(seconds=3 * self._settings.lease_s)})

    async def keep_partitions(self) -> None:
        """Makes partitions ahead and drops those past retention; a lock that is not free is tried again soon."""
        if time.monotonic() < self._partitions_at:
            return
        connection = await self._link.connection()
        try:
            cursor = await connection.execute(
                queries.ensure_partitions, {"runway": timedelta(hours=self._settings.runway_hours)}
            )
            made = (await cursor.fetchone() or [0])[0]
            if made:
                emit("partitions_made", count=made)
            retention = timedelta(days=self._settings.retention_days)
            expired = await connection.execute(queries.expired_partitions, {"retention": retention})
            for (partition,) in await expired.fetchall():
                cursor = await connection.execute("select pgtick.drop_partition(%s)", [partition])
                if (await cursor.fetchone() or [False])[0]:
                    emit("partition_dropped", partition=partition)
            await connection.execute(queries.forget_schedules, {"retention": retention})
        except psycopg.errors.LockNotAvailable as error:
            emit("partitions_wait", error=error)
            return
        if made < MANY_PARTITIONS:
            self._partitions_at = time.monotonic() + self._settings.partitions_s * random.uniform(0.8, 1.2)
