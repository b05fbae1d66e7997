"""What a worker counts: by minute for the database, in all for Prometheus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from workers.execution import Completed, Execution, Failed
from workers.stats import Stats


def execution(started_at: float = 600.0, attempt: int = 1) -> Execution:
    row: list[Any] = [1, "job", 599.5, 0, 1, 2, attempt, 0, False, None, "user", None, None, None, None]
    made = Execution(row, SimpleNamespace(max_retries=3, timeout=None), 599.5)  # type: ignore[arg-type]
    made.started_at = started_at
    return made


def test_totals_go_on_when_counts_are_taken_to_be_stored() -> None:
    stats = Stats()
    stats.add(execution(), Completed("null"), 602.0)
    first = stats.take()
    assert first is not None
    assert first["started"] == [1]
    assert stats.take() is None
    stats.add(execution(), Failed("no"), 601.0)
    stats.add(execution(attempt=4), Failed("no"), 601.0)
    total = stats.totals()[1]
    assert (total.started, total.completed, total.failed, total.retried) == (3, 1, 1, 1)
    assert (total.run_s, total.late_s, sum(total.lateness)) == (4.0, 1.5, 3)
    assert stats.totals()[1] == total
