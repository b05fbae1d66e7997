"""Loaded into a worker beside its tasks: once it is ready, nothing can be said of how it is."""

from __future__ import annotations

from typing import Any

from workers.process import Worker

_health = Worker.health


def health(self: Worker) -> dict[str, Any]:
    facts = _health(self)
    if all(loop.came_round for loop in self.loops.values()):
        raise RuntimeError("no health to be had")
    return facts


Worker.health = health  # type: ignore[method-assign]
