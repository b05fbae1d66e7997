"""Turns schedules into pending executions inside a short horizon. Every worker plans; none leads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from app.clock import Clock
from app.events import emit
from app.schedule.horizon import first
from app.schedule.selftest import self_test
from app.schedule.zones import tzdata_version
from app.settings import Settings
from app.store import arrays, queries
from app.store.connections import is_retryable
from workers.loop import Link
from workers.occurrences import OLDEST_RECORD, Batch, policies_of, problem_of

BATCH = 500
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Planner:
    """Plans what comes due within the horizon; a schedule locked by another planner is that one's business."""

    def __init__(self, settings: Settings, clock: Clock, link: Link, on_planned: Callable[[float], None]) -> None:
        self._settings = settings
        self._horizon = timedelta(seconds=settings.horizon_s)
        self._clock = clock
        self._link = link
        self._on_planned = on_planned
        self._zone_version = tzdata_version()
        self._faults: list[str] | None = None
        self._history_since: datetime | None = None
        """Since when history has partitions, as far as this one has asked for them."""
        self._rezoned: UUID | None = UUID(int=0)
        self.lag_s = 0.0

    async def tick(self) -> float:
        if not self._is_right():
            return 60.0
        full = await self._plan()
        if not full and self._rezoned is not None:
            await self._rezone(self._rezoned)
        return 0.0 if full or self._rezoned is not None else self._settings.poll_s

    async def _plan(self) -> bool:
        """Plans what comes due next; returns whether there may be more."""
        try:
            return await self._plan_batch()
        except Exception as error:
            if _lacks_partition(error) and await self._make_partitions():
                return True
            if not _is_of_a_row(error):
                raise
            await self._plan_each()
            return True

    async def _plan_each(self) -> None:
        """Plans what comes due next one by one, and stops those schedules that cannot be read, planned or written."""
        connection = await self._link.connection()
        wanted = {"until": self._clock.now_utc() + self._horizon / 2, "n": BATCH}
        for (job_id,) in await (await connection.execute(queries.due_schedules, wanted)).fetchall():
            try:
                await self._plan_batch(job_id)
            except Exception as error:
                if not _is_of_a_row(error):
                    raise
                await self._break(connection, [(job_id, problem_of(error))])

    async def _plan_batch(self, only: UUID | None = None) -> bool:
        now = self._clock.now_utc()
        connection = await self._link.connection()
        async with connection.transaction():
            # A schedule is taken up halfway into the horizon and planned to its end: frequent ones move on once for
            # many occurrences.
            cursor = connection.cursor(binary=True)
            wanted = {"until": now + self._horizon / 2, "n": BATCH, "only": only}
            await cursor.execute(queries.select_schedules, wanted)
            schedules = await cursor.fetchall()
            if not schedules:
                self.lag_s = 0.0
                return False
            oldest = schedules[0][3]
            self.lag_s = max(0.0, (now - oldest).total_seconds())
            batch = Batch(now, now + self._horizon, self._zone_version)
            if has_history := max(oldest, now - OLDEST_RECORD) >= (self._history_since or now - HOUR):
                for schedule in schedules:
                    batch.add(schedule)
                await connection.execute(queries.plan_occurrences, batch.columns())
                await self._break(connection, batch.broken)
        if not has_history:
            await self._make_history(connection, max(oldest, now - OLDEST_RECORD), now)
        if batch.due_ats:
            self._on_planned(min(batch.due_ats).timestamp())
        return not has_history or len(schedules) == BATCH or batch.unfinished

    async def _make_partitions(self) -> bool:
        """Makes those that should be there, as a janitor does now and then; returns whether any was missing."""
        connection = await self._link.connection()
        cursor = await connection.execute("select pgtick.ensure_partitions()")
        made = (await cursor.fetchone() or [0])[0]
        emit("partitions_made", count=made)
        return bool(made)

    async def _make_history(self, connection: psycopg.AsyncConnection[Any], since: datetime, now: datetime) -> None:
        """Makes places for what was missed, a day at a time, each committed by itself: others may wait for its locks.

        What is older than that is kept where history begins.
        """
        since = max(since, (self._history_since or now) - DAY)
        await connection.execute("select pgtick.ensure_partitions(since => %s)", [since])
        self._history_since = since

    async def _rezone(self, after: UUID) -> None:
        """Computes the next times again that other zone data gave, so that one that is earlier now is not late."""
        connection = await self._link.connection()
        moved: list[tuple[Any, datetime | None]] = []
        broken: list[tuple[Any, str]] = []
        async with connection.transaction():
            wanted = {"after": after, "zone_version": self._zone_version, "n": BATCH}
            rows = await (await connection.execute(queries.select_rezoned, wanted)).fetchall()
            for job_id, expression, timezone, policies_text, anchor, through, runs, skips in rows:
                try:
                    policies = policies_of(policies_text, recurring=True)
                    since = through or anchor
                    at = first(expression, timezone, policies, since, anchor=anchor, runs=runs, skips=skips or ())
                    moved.append((job_id, at))
                except Exception as error:
                    broken.append((job_id, problem_of(error)))
            columns = arrays.columns(("job_ids", "next_run_ats"), moved)
            await connection.execute(queries.move_schedules, {"zone_version": self._zone_version, **columns})
            await self._break(connection, broken)
        self._rezoned = rows[-1][0] if len(rows) == BATCH else None

    async def _break(self, connection: psycopg.AsyncConnection[Any], broken: list[tuple[Any, str]]) -> None:
        for job_id, problem in broken:
            await connection.execute(queries.break_schedule, {"job_id": job_id, "problem": problem})
            emit("schedule_broken", job_id=job_id, problem=problem)

    def _is_right(self) -> bool:
        """Refuses to plan where cron arithmetic or zone data are not what they should be: late is better than wrong."""
        if self._faults is None:
            self._faults = self_test()
            for fault in self._faults:
                emit("schedule_broken", problem=fault)
        return not self._faults


def _is_of_a_row(error: Exception) -> bool:
    """Whether a schedule is at fault, and not the database: the connection, its tables, its rights."""
    if not isinstance(error, psycopg.Error):
        return not is_retryable(error)
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError) and not _lacks_partition(error)


def _lacks_partition(error: Exception) -> bool:
    # It shares its SQLSTATE with broken constraints, which have a name.
    return isinstance(error, psycopg.errors.CheckViolation) and error.diag.constraint_name is None
