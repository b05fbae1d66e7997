"""Metrics by name, written in the format that Prometheus reads.

Nothing is counted for them while executions run: a page is filled when it is asked for, from what loops and tables
hold anyway. Every metric is in METRICS; dashboard and alerts in app/monitoring name no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Kind:
    """What a metric is: its type, what it tells, and its labels."""

    type: str
    tells: str
    labels: tuple[str, ...] = ()


METRICS = {
    # Of one worker process.
    "pgtick_starts_total": Kind("counter", "Attempts that ended, by task.", ("task",)),
    "pgtick_completed_total": Kind("counter", "Executions that completed.", ("task",)),
    "pgtick_failures_total": Kind("counter", "Executions that failed for good.", ("task",)),
    "pgtick_retries_total": Kind("counter", "Attempts that failed and are tried again.", ("task",)),
    "pgtick_run_seconds": Kind("summary", "How long attempts ran.", ("task",)),
    "pgtick_lateness_seconds": Kind("histogram", "Start minus due time.", ("task",)),
    "pgtick_slots": Kind("gauge", "Executions the worker may hold at once, by the way they run.", ("pool",)),
    "pgtick_slots_taken": Kind("gauge", "Of these, taken.", ("pool",)),
    "pgtick_unreported": Kind("gauge", "Outcomes that the database has not taken yet."),
    "pgtick_claim_seconds": Kind("gauge", "How long the last claim took."),
    "pgtick_planner_lag_seconds": Kind("gauge", "How far behind the planner of this worker found the schedules."),
    "pgtick_lease_losses_total": Kind("counter", "Claims of this worker that it lost."),
    "pgtick_events_total": Kind("counter", "Events by name, as in the logs.", ("event",)),
    "pgtick_loop_seconds_ago": Kind("gauge", "When each loop last came round.", ("loop",)),
    "pgtick_healthy": Kind("gauge", "1 while every loop comes round and the database is there."),
    # Of the whole installation, from the API.
    "pgtick_queue_depth": Kind("gauge", "Executions that are due and not started.", ("queue",)),
    "pgtick_queue_late": Kind("gauge", "Of these, due for more than 2 s.", ("queue",)),
    "pgtick_queue_oldest_seconds": Kind("gauge", "For how long the oldest of these has been due.", ("queue",)),
    "pgtick_queue_workers": Kind("gauge", "Live workers that serve the queue.", ("queue",)),
    "pgtick_executions_running": Kind("gauge", "Executions that are running."),
    "pgtick_workers": Kind("gauge", "Live workers."),
    "pgtick_worker_capacity": Kind("gauge", "Executions that they may hold at once."),
    "pgtick_schedules": Kind("gauge", "Recurring jobs and dates far ahead, by state.", ("state",)),
    "pgtick_schedule_lag_seconds": Kind("gauge", "How overdue the most overdue schedule is; planners keep it at 0."),
    "pgtick_partition_runway_seconds": Kind("gauge", "For how long partitions have been made ahead.", ("table",)),
    "pgtick_findings": Kind("gauge", "What the janitor found wrong, by kind.", ("kind",)),
    "pgtick_pool_connections": Kind("gauge", "Connections of an API process's pool, by state.", ("pid", "state")),
    "pgtick_pool_waiting": Kind("gauge", "Requests that wait for one of them.", ("pid",)),
}


class Page:
    """Collects values and writes them as one page."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def set(self, name: str, value: float, *labels: str) -> None:
        """The value of a counter or gauge."""
        self._family(name).add_metric(labels, value)  # type: ignore[attr-defined]

    def summarize(self, name: str, count: int, total: float, *labels: str) -> None:
        self._family(name).add_metric(labels, count, total)  # type: ignore[attr-defined]

    def distribute(self, name: str, bounds: Sequence[float], counts: Sequence[int], total: float, *labels: str) -> None:
        """A histogram: `counts[i]` lie at or under `bounds[i]` and over the bound before; one more lie over all."""
        upto = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
            upto += count
            buckets.append((bound, upto))
        self._family(name).add_metric(labels, buckets, total)  # type: ignore[attr-defined]

    def _family(self, name: str) -> Metric:
        family = self._families.get(name)
        if family is None:
            kind = METRICS[name]
            family = self._families[name] = _families()[kind.type](name, kind.tells, labels=kind.labels)
        return family

    def collect(self) -> Iterable[Metric]:
        return self._families.values()

    def text(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)


def _families() -> dict[str, Any]:
    # Imported when a page is asked for: the library loads a web server of its own, and takes 0.1 s for it.
    from prometheus_client import core

    return {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
        "summary": core.SummaryMetricFamily,
    }
