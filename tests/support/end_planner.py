"""Loaded into a worker beside its tasks: its planner's loop ends after the second round."""

from __future__ import annotations

import asyncio

from workers.planner import Planner

_tick = Planner.tick
_rounds = 0


async def tick(self: Planner) -> float:
    global _rounds
    _rounds += 1
    if _rounds <= 2:
        return await _tick(self)
    raise asyncio.CancelledError


Planner.tick = tick  # type: ignore[method-assign]
