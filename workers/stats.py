"""Counts of what this worker ran, per minute and task, so that no dashboard has to scan history."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from workers.execution import Completed, Execution, Failed, Outcome

LATENESS_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)
"""Upper bounds of the lateness histogram's buckets; one more bucket holds the rest. As in pgtick.lateness_bounds()."""


@dataclass
class Counts:
    started: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    run_s: float = 0.0
    lateness: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS_MS) + 1))


class Stats:
    """Adds up outcomes until they are taken to be stored."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], Counts] = {}

    def add(self, execution: Execution, outcome: Outcome, finished_at: float) -> None:
        if execution.started_at is None:
            return
        key = (int(execution.started_at // 60), execution.task_key)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counts()
        counts.started += 1
        counts.run_s += finished_at - execution.started_at
        counts.lateness[bisect_left(LATENESS_BOUNDS_MS, (execution.started_at - execution.due_at) * 1000)] += 1
        if isinstance(outcome, Completed):
            counts.completed += 1
        elif isinstance(outcome, Failed):
            if execution.attempt > execution.max_retries or outcome.final:
                counts.failed += 1
            else:
                counts.retried += 1

    def take(self) -> dict[str, list[Any]] | None:
        """The columns of `add_stats.sql` for all that was counted since the last time; None when that is nothing."""
        taken, self._counts = self._counts, {}
        if not taken:
            return None
        return {
            "minutes": [float(minute * 60) for minute, _ in taken],
            "task_keys": [key for _, key in taken],
            "started": [c.started for c in taken.values()],
            "completed": [c.completed for c in taken.values()],
            "failed": [c.failed for c in taken.values()],
            "retried": [c.retried for c in taken.values()],
            "run_ms": [int(c.run_s * 1000) for c in taken.values()],
            "lateness": ["{" + ",".join(map(str, c.lateness)) + "}" for c in taken.values()],
        }
