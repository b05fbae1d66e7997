"""What a loop says of its own health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from workers.loop import Link, Loop


def overdue_after(seconds: float, tick: Callable[[], Awaitable[float]]) -> float:
    """How long after it was to come round last, seconds, a loop is that has run that long."""

    async def run() -> float:
        loop = Loop("test", tick, Link("test", "postgresql://nowhere"))
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(seconds)
        overdue = time.monotonic() - loop.beat
        loop.stop()
        await running
        return overdue

    return asyncio.run(run())


def test_a_loop_whose_every_tick_fails_does_not_come_round() -> None:
    async def tick() -> float:
        raise LookupError("there is no such column")

    assert overdue_after(1.0, tick) > 0.8


@pytest.mark.parametrize("error", [psycopg.OperationalError("the connection is lost"), None])
def test_a_loop_that_waits_for_the_database_or_for_its_next_time_is_healthy(error: Exception | None) -> None:
    async def tick() -> float:
        if error:
            raise error
        return 60.0

    assert overdue_after(0.5, tick) < 0.3


def test_a_wake_up_that_comes_during_a_tick_ends_the_sleep_after_it() -> None:
    async def run() -> int:
        ticks = 0

        async def tick() -> float:
            nonlocal ticks
            ticks += 1
            loop.wake() if ticks < 3 else loop.stop()
            return 60.0

        loop = Loop("test", tick, Link("test", "postgresql://nowhere"))
        await asyncio.wait_for(loop.run(), timeout=5)
        return ticks

    assert asyncio.run(run()) == 3
