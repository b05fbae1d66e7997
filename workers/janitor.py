"""Keeps house: recovers what dead workers left, makes and drops partitions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta

import psycopg

from app.events import emit
from app.settings import Settings
from app.store import queries
from workers.loop import Link

RECOVER_BATCH = 1000
PARTITIONS_PAUSE_S = 60.0


class Janitor:
    """Every worker runs one; they share the work by skipping what another has locked."""

    def __init__(self, settings: Settings, link: Link, wake_claimer: Callable[[], None]) -> None:
        self._settings = settings
        self._link = link
        self._wake_claimer = wake_claimer
        self._partitions_at = 0.0

    async def tick(self) -> float:
        await self.recover()
        if time.monotonic() >= self._partitions_at:
            await self.keep_partitions()
            self._partitions_at = time.monotonic() + PARTITIONS_PAUSE_S * random.uniform(0.8, 1.2)
        return self._settings.janitor_s * random.uniform(0.8, 1.2)

    async def recover(self) -> None:
        """Takes executions back from expired claims."""
        connection = await self._link.connection()
        while True:
            cursor = await connection.execute(queries.recover_expired, {"n": RECOVER_BATCH})
            recovered = 0
            for worker_id, count, some_claims in await cursor.fetchall():
                emit("leases_recovered", worker_id=worker_id, executions=count, claim_ids=some_claims)
                recovered += count
            if recovered:
                self._wake_claimer()
            if recovered < RECOVER_BATCH:
                break
        await connection.execute(queries.retire_workers, {"silent": timedelta(seconds=3 * self._settings.lease_s)})

    async def keep_partitions(self) -> None:
        """Makes partitions ahead and drops those past retention; a lock that is not free is tried again next time."""
        connection = await self._link.connection()
        try:
            made = (
                await (
                    await connection.execute(
                        queries.ensure_partitions, {"runway": timedelta(hours=self._settings.runway_hours)}
                    )
                ).fetchone()
                or [0]
            )[0]
            if made:
                emit("partitions_made", count=made)
            expired = await connection.execute(
                queries.expired_partitions, {"retention": timedelta(days=self._settings.retention_days)}
            )
            for (partition,) in await expired.fetchall():
                cursor = await connection.execute("select pgtick.drop_partition(%s)", [partition])
                if (await cursor.fetchone() or [False])[0]:
                    emit("partition_dropped", partition=partition)
        except psycopg.errors.LockNotAvailable as error:
            emit("partitions_wait", error=error)
