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
    late_s: float = 0.0
    lateness: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS_MS) + 1))

    def add(self, more: Counts) -> None:
        self.started += more.started
        self.completed += more.completed
        self.failed += more.failed
        self.retried += more.retried
        self.run_s += more.run_s
        self.late_s += more.late_s
        self.lateness = [mine + theirs for mine, theirs in zip(self.lateness, more.lateness, strict=True)]


class Stats:
    """Adds up outcomes until they are taken to be stored."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], Counts] = {}
        self._taken: dict[int, Counts] = {}

    def add(self, execution: Execution, outcome: Outcome, finished_at: float) -> None:
        if execution.started_at is None:
            return
        key = (int(execution.started_at // 60), execution.task_key)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counts()
        counts.started += 1
        counts.run_s += finished_at - execution.started_at
        late_s = execution.started_at - execution.due_at
        counts.late_s += late_s
        counts.lateness[bisect_left(LATENESS_BOUNDS_MS, late_s * 1000)] += 1
        if isinstance(outcome, Completed):
            counts.completed += 1
        elif isinstance(outcome, Failed):
            if execution.is_retried_after(outcome):
                counts.retried += 1
            else:
                counts.failed += 1

    def take(self) -> dict[str, list[Any]] | None:
        """The columns of `add_stats.sql` for all that was counted since the last time; None when that is nothing."""
        taken, self._counts = self._counts, {}
        if not taken:
            return None
        for (_, task_key), counts in taken.items():
            self._taken.setdefault(task_key, Counts()).add(counts)
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

    def totals(self) -> dict[int, Counts]:
        """All that was counted since the process started, by task key."""
        totals: dict[int, Counts] = {}
        for task_key, counts in [*self._taken.items(), *((key, counts) for (_, key), counts in self._counts.items())]:
            totals.setdefault(task_key, Counts()).add(counts)
        return totals
