"""Loaded into a worker beside its tasks: its third claim never comes back."""

from __future__ import annotations

import asyncio

from workers.claimer import Claimer

_tick = Claimer.tick
_rounds = 0


async def tick(self: Claimer) -> float:
    global _rounds
    _rounds += 1
    if _rounds <= 2:
        return await _tick(self)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


Claimer.tick = tick  # type: ignore[method-assign]
