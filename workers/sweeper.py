"""Finds what came in behind the claims' floors without a wake-up: put in by hand, or committed long after its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from app.clock import Clock
from app.settings import Settings
from app.store import queries
from workers.loop import Link
from workers.registry import Pool
from workers.scan import FAR_MARGIN_S
from workers.slots import Slots

SHARE = 0.05
"""Of its time, at most, it spends on looking: what an old snapshot keeps from being removed is read each time."""


class Sweeper:
    """Looks from the beginning on a connection of its own, so that no claim waits for it."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        link: Link,
        pools: list[Slots],
        on_overlooked: Callable[[Pool, int, datetime], None],
    ) -> None:
        """`on_overlooked` takes a pool, a priority, and since when the earliest of them waits."""
        self._settings = settings
        self._clock = clock
        self._link = link
        self._pools = pools
        self._on_overlooked = on_overlooked

    async def tick(self) -> float:
        connection = await self._link.connection()
        started = time.monotonic()
        until = datetime.fromtimestamp(self._clock.now() - FAR_MARGIN_S, UTC)
        for slots in self._pools:
            if slots.tasks:
                facts = {"until": until, "task_keys": list(slots.tasks)}
                cursor = await connection.execute(queries.overlooked, facts)
                for priority, due_at in await cursor.fetchall():
                    self._on_overlooked(slots.pool, priority, due_at)
        return max(self._settings.sweep_s, (time.monotonic() - started) / SHARE)
