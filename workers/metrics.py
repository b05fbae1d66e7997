"""The page of metrics of one worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import events
from app.metrics import Page
from workers.slots import Slots
from workers.stats import LATENESS_BOUNDS_MS, Counts

BOUNDS_S = [bound / 1000 for bound in LATENESS_BOUNDS_MS]


def page(
    totals: Mapping[int, Counts],
    pools: Sequence[Slots],
    health: Mapping[str, Any],
    claim_s: float,
    planner_lag_s: float,
) -> bytes:
    """`totals` by task key since the worker started; `health` as on /healthz."""
    page = Page()
    task_ids = {key: task.task_id for slots in pools for key, task in slots.tasks.items()}
    for key, counts in totals.items():
        task_id = task_ids.get(key, f"#{key}")
        page.set("pgtick_starts_total", counts.started, task_id)
        page.set("pgtick_completed_total", counts.completed, task_id)
        page.set("pgtick_failures_total", counts.failed, task_id)
        page.set("pgtick_retries_total", counts.retried, task_id)
        page.summarize("pgtick_run_seconds", counts.started, counts.run_s, task_id)
        page.distribute("pgtick_lateness_seconds", BOUNDS_S, counts.lateness, counts.late_s, task_id)
    for slots in pools:
        page.set("pgtick_slots", slots.capacity, slots.pool)
        page.set("pgtick_slots_taken", slots.taken, slots.pool)
    page.set("pgtick_unreported", health["unreported"])
    page.set("pgtick_claim_seconds", claim_s)
    page.set("pgtick_planner_lag_seconds", planner_lag_s)
    page.set("pgtick_lease_losses_total", events.counts.get("lease_lost", 0))
    for name, count in sorted(events.counts.items()):
        page.set("pgtick_events_total", count, name)
    for name, loop in health["loops"].items():
        page.set("pgtick_loop_seconds_ago", loop["seconds_ago"], name)
    page.set("pgtick_healthy", float(health["ok"]))
    return page.text()
