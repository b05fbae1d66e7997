"""Turns schedules into pending executions inside a short horizon. Every worker plans; none leads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from app.clock import Clock
from app.events import emit
from app.schedule.errors import ScheduleError, ScheduleErrors
from app.schedule.horizon import Plan, first, plan
from app.schedule.policies import Policies
from app.schedule.selftest import self_test
from app.schedule.zones import tzdata_version
from app.settings import Settings
from app.store import queries
from workers.loop import Link

BATCH = 500
OLDEST_RECORD = timedelta(days=7)
"""Skipped occurrences from longer ago are recorded at this age: their hours have no partitions any more."""


class Planner:
    """Plans what comes due within the horizon; a schedule locked by another planner is that one's business."""

    def __init__(self, settings: Settings, clock: Clock, link: Link, on_planned: Callable[[float], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._link = link
        self._on_planned = on_planned
        self._zone_version = tzdata_version()
        self._faults: list[str] | None = None
        self.lag_s = 0.0

    async def tick(self) -> float:
        if not self._is_right():
            return 60.0
        now = self._clock.now_utc()
        horizon = timedelta(seconds=self._settings.horizon_s)
        connection = await self._link.connection()
        async with connection.transaction():
            # A schedule is taken up halfway into the horizon and planned to its end: frequent ones move on once for
            # many occurrences.
            cursor = await connection.execute(queries.select_schedules, {"until": now + horizon / 2, "n": BATCH})
            schedules = await cursor.fetchall()
            if not schedules:
                self.lag_s = 0.0
                return self._settings.poll_s
            self.lag_s = max(0.0, (now - schedules[0][3]).total_seconds())
            batch = Batch(now, now + horizon, self._zone_version)
            for schedule in schedules:
                batch.add(schedule)
            if batch.oldest < now - timedelta(hours=1):
                await connection.execute("select pgtick.ensure_partitions(since => %s)", [batch.oldest])
            await connection.execute(queries.plan_occurrences, batch.columns())
            for job_id, problem in batch.broken:
                await connection.execute(queries.break_schedule, {"job_id": job_id, "problem": problem})
                emit("schedule_broken", job_id=job_id, problem=problem)
        if batch.due_ats:
            self._on_planned(min(batch.due_ats).timestamp())
        return 0.0 if len(schedules) == BATCH else self._settings.poll_s

    def _is_right(self) -> bool:
        """Refuses to plan where cron arithmetic or zone data are not what they should be: late is better than wrong."""
        if self._faults is None:
            self._faults = self_test()
            for fault in self._faults:
                emit("schedule_broken", problem=fault)
        return not self._faults


class Batch:
    """What one round of planning writes: the columns of `plan_occurrences.sql`."""

    def __init__(self, now: datetime, until: datetime, zone_version: str) -> None:
        self.now = now
        self.until = until
        self.zone_version = zone_version
        self.oldest = now
        self.due_ats: list[datetime] = []
        self.broken: list[tuple[Any, str]] = []
        self._moved: list[tuple[Any, datetime | None, datetime | None, int]] = []
        self._ended: list[Any] = []
        self._occurrences: list[tuple[Any, ...]] = []
        self._skipped: list[tuple[Any, ...]] = []

    def add(self, schedule: tuple[Any, ...]) -> None:
        (
            job_id,
            user_id,
            task_key,
            next_run_at,
            expression,
            timezone,
            priority,
            policies_text,
            anchor,
            through,
            version,
            runs,
        ) = schedule
        facts = (user_id, task_key, priority)
        if expression is None:
            self._occur(job_id, facts, next_run_at, next_run_at, _policies(policies_text, recurring=False))
            self._ended.append(job_id)
            return
        try:
            policies = _policies(policies_text, recurring=True)
            if version != self.zone_version:
                next_run_at = first(expression, timezone, policies, through or anchor, anchor=anchor, runs=runs)
            if next_run_at is None:
                planned = Plan([], [], None, runs)
            else:
                planned = plan(
                    expression,
                    timezone,
                    policies,
                    job_id=job_id,
                    next_run_at=next_run_at,
                    now=self.now,
                    until=self.until,
                    runs=runs,
                    anchor=anchor,
                )
        except (ScheduleError, ScheduleErrors) as error:
            self.broken.append((job_id, str(error)))
            return
        for scheduled_at, due_at in planned.occurrences:
            self._occur(job_id, facts, scheduled_at, due_at, policies)
        for left_out in planned.skipped:
            recorded_at = max(left_out.scheduled_at, self.now - OLDEST_RECORD)
            self.oldest = min(self.oldest, recorded_at)
            self._skipped.append((job_id, recorded_at, user_id, task_key, left_out.reason, left_out.count))
        planned_through = planned.occurrences[-1][0] if planned.occurrences else None
        self._moved.append((job_id, planned.next_run_at, planned_through, planned.runs))

    def _occur(
        self, job_id: Any, facts: tuple[Any, ...], scheduled_at: datetime, due_at: datetime, policies: Policies
    ) -> None:
        user_id, task_key, priority = facts
        overlap = None if policies.overlap == "allow" else policies.overlap
        expires_at = None if policies.expires_after_s is None else due_at + timedelta(seconds=policies.expires_after_s)
        self.oldest = min(self.oldest, scheduled_at)
        self.due_ats.append(due_at)
        self._occurrences.append((job_id, scheduled_at, due_at, user_id, task_key, priority, overlap, expires_at))

    def columns(self) -> dict[str, Any]:
        return {
            "zone_version": self.zone_version,
            "ended": self._ended,
            **_columns(("job_ids", "next_run_ats", "planned_throughs", "runs"), self._moved),
            **_columns(
                (
                    "of_jobs",
                    "scheduled_ats",
                    "due_ats",
                    "user_ids",
                    "task_keys",
                    "priorities",
                    "overlaps",
                    "expire_ats",
                ),
                self._occurrences,
            ),
            **_columns(
                (
                    "skipped_jobs",
                    "skipped_ats",
                    "skipped_user_ids",
                    "skipped_task_keys",
                    "skipped_reasons",
                    "skipped_counts",
                ),
                self._skipped,
            ),
        }


def _columns(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    return {name: list(column) for name, column in zip(names, columns, strict=True)}


@lru_cache(maxsize=1024)
def _policies(text: str | None, *, recurring: bool) -> Policies:
    return Policies.from_dict(None if text is None else msgspec.json.decode(text), recurring)
