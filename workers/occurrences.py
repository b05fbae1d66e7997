"""What one round of planning makes of schedules: occurrences, those left out, and when each comes next."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from app.schedule.errors import ScheduleError, ScheduleErrors
from app.schedule.horizon import GRACE, Plan, first, jitter, plan
from app.schedule.policies import Policies
from app.store import arrays
from workers.execution import storable

PROBLEM_LIMIT = 1_000
"""Characters of what is said about a schedule that cannot be planned."""
OLDEST_RECORD = timedelta(days=7)
"""Skipped occurrences from longer ago are recorded at this age: their hours have no partitions any more."""
SKIPPED_BY_HAND = "skipped by hand"


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
            self.broken.append((schedule[0], problem_of(error)))

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
        policies = policies_of(policies_text, recurring=True)
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
        kept, runs, next_run_at = planned.occurrences, planned.runs, planned.next_run_at
        dealt_with = [at for at, _ in kept[-1:]]
        if skips:
            # What was skipped by hand is none of its max_runs.
            kept = [occurrence for occurrence in kept if occurrence.scheduled_at not in skips]
            runs -= len(planned.occurrences) - len(kept)
            if next_run_at in skips or (next_run_at is None and runs < planned.runs):
                after = next_run_at or planned.occurrences[-1].scheduled_at
                next_run_at = first(expression, timezone, policies, after, anchor=anchor, runs=runs, skips=skips)
            for at in skips:
                if at <= self.until and (next_run_at is None or at < next_run_at):
                    # History may have had no place for it when it was skipped.
                    self._skip(job_id, facts, at, 1, SKIPPED_BY_HAND)
                    dealt_with.append(at)
        for number, (scheduled_at, due_at) in enumerate(kept, 1):
            following = kept[number].scheduled_at if number < len(kept) else next_run_at
            self._occur(job_id, facts, scheduled_at, due_at, policies, following)
        for left_out in planned.skipped:
            self._skip(job_id, facts, left_out.scheduled_at, left_out.count, left_out.reason)
        self.unfinished |= next_run_at is not None and next_run_at <= self.until
        # What was left out is dealt with, too: other zone data must not bring it back.
        if planned.skipped:
            dealt_with.append(self.now)
        self._moved.append((job_id, next_run_at, max(dealt_with, default=None), runs))

    def _add_one_off(self, job_id: Any, facts: tuple[Any, ...], at: datetime, policies_text: str | None) -> None:
        policies = policies_of(policies_text, recurring=False)
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


def problem_of(error: Exception) -> str:
    """What is said about a schedule that cannot be planned."""
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
def policies_of(text: str | None, *, recurring: bool) -> Policies:
    return Policies.from_dict(None if text is None else msgspec.json.decode(text), recurring)
