"""Turns schedules into pending executions inside a short horizon. Every worker plans; none leads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from app.clock import Clock
from app.events import emit
from app.schedule.errors import ScheduleError, ScheduleErrors
from app.schedule.horizon import GRACE, Plan, first, jitter, plan
from app.schedule.policies import Policies
from app.schedule.selftest import self_test
from app.schedule.zones import tzdata_version
from app.settings import Settings
from app.store import arrays, queries
from app.store.connections import is_retryable
from workers.execution import storable
from workers.loop import Link

BATCH = 500
PROBLEM_LIMIT = 1_000
"""Characters of what is said about a schedule that cannot be planned."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OLDEST_RECORD = 7 * DAY
"""Skipped occurrences from longer ago are recorded at this age: their hours have no partitions any more."""
SKIPPED_BY_HAND = "skipped by hand"


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
                await self._break(connection, [(job_id, _problem(error))])

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
                    policies = _policies(policies_text, recurring=True)
                    since = through or anchor
                    at = first(expression, timezone, policies, since, anchor=anchor, runs=runs, skips=skips or ())
                    moved.append((job_id, at))
                except Exception as error:
                    broken.append((job_id, _problem(error)))
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


class Batch:
    """What one round of planning writes: the columns of `plan_occurrences.sql`."""

    def __init__(self, now: datetime, until: datetime, zone_version: str) -> None:
        self.now = now
        self.until = until
        self.zone_version = zone_version
        self.unfinished = False
        """Whether a schedule has more to be planned than fits into one call."""
        self.due_ats: list[datetime] = []
        self.broken: list[tuple[Any, str]] = []
        self._moved: list[tuple[Any, datetime | None, datetime | None, int]] = []
        self._ended: list[Any] = []
        self._occurrences: list[tuple[Any, ...]] = []
        self._skipped: list[tuple[Any, ...]] = []

    def add(self, schedule: tuple[Any, ...]) -> None:
        """Plans one schedule; one that cannot be planned, whatever is wrong with it, adds nothing but its problem."""
        columns: tuple[list[Any], ...] = (self.due_ats, self._moved, self._ended, self._occurrences, self._skipped)
        lengths = [len(column) for column in columns]
        try:
            self._add(schedule)
        except Exception as error:
            for column, length in zip(columns, lengths, strict=True):
                del column[length:]
            self.broken.append((schedule[0], _problem(error)))

    def _add(self, schedule: tuple[Any, ...]) -> None:
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
            skips,
        ) = schedule
        facts = (user_id, task_key, priority)
        if expression is None:
            self._add_one_off(job_id, facts, next_run_at, policies_text)
            return
        policies = _policies(policies_text, recurring=True)
        skips = skips or ()
        if version != self.zone_version:
            after = through or anchor
            next_run_at = first(expression, timezone, policies, after, anchor=anchor, runs=runs, skips=skips)
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
                skips=skips,
            )
        # What was skipped by hand is none of its max_runs.
        kept = [occurrence for occurrence in planned.occurrences if occurrence.scheduled_at not in skips]
        runs = planned.runs - len(planned.occurrences) + len(kept)
        next_run_at = planned.next_run_at
        if next_run_at in skips or (next_run_at is None and runs < planned.runs):
            after = next_run_at or planned.occurrences[-1].scheduled_at
            next_run_at = first(expression, timezone, policies, after, anchor=anchor, runs=runs, skips=skips)
        followings = [*(occurrence.scheduled_at for occurrence in kept[1:]), next_run_at]
        for (scheduled_at, due_at), following in zip(kept, followings, strict=False):
            self._occur(job_id, facts, scheduled_at, due_at, policies, following)
        for left_out in planned.skipped:
            self._skip(job_id, facts, left_out.scheduled_at, left_out.count, left_out.reason)
        passed = [at for at in skips if at <= self.until and (next_run_at is None or at < next_run_at)]
        for at in passed:  # history may have had no place for it when it was skipped
            self._skip(job_id, facts, at, 1, SKIPPED_BY_HAND)
        self.unfinished |= next_run_at is not None and next_run_at <= self.until
        # What was left out is dealt with, too: other zone data must not bring it back.
        dealt_with = passed + [at for at, _ in planned.occurrences[-1:]] + ([self.now] if planned.skipped else [])
        self._moved.append((job_id, next_run_at, max(dealt_with, default=None), runs))

    def _add_one_off(self, job_id: Any, facts: tuple[Any, ...], at: datetime, policies_text: str | None) -> None:
        policies = _policies(policies_text, recurring=False)
        due_at = at + jitter(job_id, at, timedelta(seconds=policies.jitter_s))
        self._occur(job_id, facts, at, due_at, policies, None)
        self._ended.append(job_id)

    def _skip(self, job_id: Any, facts: tuple[Any, ...], at: datetime, count: int, reason: str) -> None:
        user_id, task_key, _ = facts
        recorded_at = max(at, self.now - OLDEST_RECORD)
        self._skipped.append((job_id, recorded_at, user_id, task_key, reason, count))

    def _occur(
        self,
        job_id: Any,
        facts: tuple[Any, ...],
        scheduled_at: datetime,
        due_at: datetime,
        policies: Policies,
        following: datetime | None,
    ) -> None:
        user_id, task_key, priority = facts
        overlap: str | None = None if policies.overlap == "allow" else policies.overlap
        if policies.missed == "all" and overlap and self.now - scheduled_at > GRACE:
            overlap = "wait"  # all are to run, so each has its turn
        expires_at = _deadline(policies, due_at, self.now, following)
        self.due_ats.append(due_at)
        self._occurrences.append((job_id, scheduled_at, due_at, user_id, task_key, priority, overlap, expires_at))

    def columns(self) -> dict[str, Any]:
        return {
            "zone_version": self.zone_version,
            "ended": arrays.plain(self._ended),
            **arrays.columns(("job_ids", "next_run_ats", "planned_throughs", "runs"), self._moved),
            **arrays.columns(
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
            **arrays.columns(
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


def _is_of_a_row(error: Exception) -> bool:
    """Whether a schedule is at fault, and not the database: the connection, its tables, its rights."""
    if not isinstance(error, psycopg.Error):
        return not is_retryable(error)
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError) and not _lacks_partition(error)


def _lacks_partition(error: Exception) -> bool:
    # It shares its SQLSTATE with broken constraints, which have a name.
    return isinstance(error, psycopg.errors.CheckViolation) and error.diag.constraint_name is None


def _problem(error: Exception) -> str:
    said = str(error) if isinstance(error, ScheduleError | ScheduleErrors) else f"{type(error).__name__}: {error}"
    return storable(said, PROBLEM_LIMIT)


def _deadline(policies: Policies, due_at: datetime, now: datetime, following: datetime | None) -> datetime | None:
    """When it is too late to start: as the user said, and where missed occurrences are left out, once it is missed.

    An occurrence that was pending when everything went down is missed like those that were never planned.
    """
    deadlines = []
    if policies.expires_after_s is not None:
        deadlines.append(due_at + timedelta(seconds=policies.expires_after_s))
    if policies.recurring:
        missed_at = max(due_at, now) + GRACE
        if policies.missed == "skip":
            deadlines.append(missed_at)
        elif policies.missed == "all":
            deadlines.append(max(due_at, now) + timedelta(seconds=policies.missed_window_s))
        elif following is not None:
            deadlines.append(max(missed_at, following + timedelta(seconds=policies.jitter_s)))
    return min(deadlines, default=None)


@lru_cache(maxsize=1024)
def _policies(text: str | None, *, recurring: bool) -> Policies:
    return Policies.from_dict(None if text is None else msgspec.json.decode(text), recurring)
