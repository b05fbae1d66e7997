"""What one schedule does in a stretch of time: for the planner and for previews.

The next occurrence always follows from the scheduled instant before it, never from the clock, so nothing drifts.
The clock (`now`) is a parameter, and only decides what counts as missed.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from app.schedule.cron import Cron, Fold, Gap, next_run, parse
from app.schedule.dates import END
from app.schedule.every import EPOCH, Every, is_every
from app.schedule.exclusions import Allowed
from app.schedule.policies import Policies
from app.schedule.walls import as_utc
from app.schedule.zones import zone

GRACE = timedelta(seconds=60)
"""An occurrence found later than this was missed; anything less is a planner that was briefly busy."""
LIMIT = 1_000
"""Occurrences that one call plans at most; the next call goes on where it stopped."""

PATIENCE_S = 1.0
"""So long a preview looks for runs that exclusions leave."""

_TICK = timedelta(microseconds=1)
_DEFAULTS = Policies.defaults(recurring=True)


class Occurrence(NamedTuple):
    scheduled_at: datetime
    due_at: datetime
    """`scheduled_at` plus this occurrence's jitter."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Occurrences that a policy left out: `count` of them in a row, the first at `scheduled_at`."""

    scheduled_at: datetime
    reason: str
    count: int


class Plan(NamedTuple):
    occurrences: list[Occurrence]
    skipped: list[Skipped]
    next_run_at: datetime | None
    """The first occurrence not dealt with; None when the schedule has ended."""
    runs: int
    """Occurrences planned since the job was made."""


class Run(NamedTuple):
    """A coming run, for people."""

    at: datetime
    local: datetime
    """The same instant in the job's zone."""
    note: str | None
    """What daylight saving does to it or left out before it."""


def plan(
    expression: str,
    timezone: str,
    policies: Policies | None,
    *,
    job_id: UUID,
    next_run_at: datetime,
    now: datetime,
    until: datetime,
    runs: int = 0,
    anchor: datetime | None = None,
    limit: int = LIMIT,
    grace: timedelta = GRACE,
    skips: Collection[datetime] = (),
) -> Plan:
    """Plans the occurrences of one schedule from `next_run_at` to `until`, both included.

    When the first is older than `grace` (plus the jitter), there was an outage, and `missed` decides about all
    occurrences up to now: `latest` runs only the newest of them, `skip` runs that one only if it is still within the
    grace, `all` runs those of the last `missed_window_s` seconds. The rest is returned as skipped, folded and counted.
    The newest is none of `skips`, which are left to the caller otherwise.
    Raises ScheduleError for an expression or a zone that is none, as a row written by hand may hold.
    """
    next_run_at = as_utc(next_run_at)
    if policies is None or policies is _DEFAULTS:
        # Nearly every schedule at nearly every call: one occurrence, and a next time that the memo knows.
        if next_run_at <= until and now - next_run_at <= grace and limit > 0 and not is_every(expression):
            following = next_run(expression, timezone, next_run_at)
            if following is None or following > until:
                return Plan([Occurrence(next_run_at, next_run_at)], [], following, runs + 1)
        policies = _DEFAULTS
    return _Planning(expression, timezone, policies, job_id, as_utc(now), runs, anchor, skips).run(
        next_run_at, as_utc(until), limit, grace
    )


class _Planning:
    """One call of `plan` beyond the common case."""

    def __init__(
        self,
        expression: str,
        timezone: str,
        policies: Policies,
        job_id: UUID,
        now: datetime,
        runs: int,
        anchor: datetime | None,
        skips: Collection[datetime],
    ) -> None:
        self.schedule = occurrences_of(expression, timezone, policies)
        self.policies = policies
        self.job_id = job_id
        self.now = now
        self.runs = runs
        self.anchor = anchor
        self.skips = skips
        self.jitter = timedelta(seconds=policies.jitter_s)
        self.occurrences: list[Occurrence] = []
        self.skipped: list[Skipped] = []
        self.unfinished = False
        """Whether catching up is to go on in the next call."""

    def run(self, at: datetime | None, until: datetime, limit: int, grace: timedelta) -> Plan:
        start = self.policies.start_at
        if at is not None and start is not None and at < start:
            at = self._next(start - _TICK)
        late = grace + self.jitter
        if at is not None and not self._over(at) and self.now - at > late and limit > 0:
            at = self._catch_up(at, late)
        room = 0 if self.unfinished else limit
        while at is not None and at <= until and not self._over(at) and len(self.occurrences) < room:
            self._take(at)
            at = self._next(at)
        return Plan(self.occurrences, self.skipped, None if at is None or self._over(at) else at, self.runs)

    def _catch_up(self, at: datetime, late: timedelta) -> datetime | None:
        """Deals with the occurrences that were missed from `at` on; returns the first that still is to be planned."""
        policies = self.policies
        last = min(self.now, policies.end_at or self.now)
        if policies.missed == "all":
            window = min(policies.missed_window_s, policies.expires_after_s or policies.missed_window_s)
            oldest = self.now - timedelta(seconds=window)
            if at >= oldest:
                return at
            older, reached = self._count(at, min(oldest - _TICK, last))
            self._skip(at, older + 1, "older than the catch-up window of policy missed: all")
            return self._next(reached)
        newest = max(at, self.schedule.prev(last + _TICK, self.anchor) or at)
        while newest in self.skips and newest > at:
            newest = max(at, self.schedule.prev(newest, self.anchor) or at)
        older, reached = self._count(at, newest)
        if policies.missed == "skip" and self.now - newest > late:
            self._skip(at, older + 1, "policy missed: skip")
            return self._next(reached)
        reason = f"policy missed: {policies.missed} runs only the newest"
        if reached < newest:
            self._skip(at, older + 1, reason)
            return self._next(reached)
        self._skip(at, older, reason)
        if self._expired(newest):
            self._skip(newest, 1, "later than policy expires_after_s allows")
        else:
            self._take(newest)
        return self._next(newest)

    def _take(self, at: datetime) -> None:
        self.occurrences.append(Occurrence(at, at + jitter(self.job_id, at, self.jitter)))
        self.runs += 1

    def _skip(self, at: datetime, count: int, reason: str) -> None:
        if count:
            self.skipped.append(Skipped(at, f"missed: the scheduler was not running in time; {reason}", count))

    def _over(self, at: datetime) -> bool:
        policies = self.policies
        return (policies.max_runs is not None and self.runs >= policies.max_runs) or (
            policies.end_at is not None and at > policies.end_at
        )

    def _expired(self, at: datetime) -> bool:
        expires = self.policies.expires_after_s
        return expires is not None and self.now - at - jitter(self.job_id, at, self.jitter) > timedelta(seconds=expires)

    def _next(self, after: datetime) -> datetime | None:
        return self.schedule.next(after, self.anchor)

    def _count(self, after: datetime, until: datetime) -> tuple[int, datetime]:
        """How many occurrences lie in (after, until], and until when that got: further is the next call's business."""
        if not isinstance(self.schedule, Allowed):
            return self.schedule.count(after, until, self.anchor), until
        counted, reached = self.schedule.count_some(after, until, self.anchor)
        self.unfinished = reached < until
        return counted, reached


def jitter(job_id: UUID, scheduled_at: datetime, spread: timedelta) -> timedelta:
    """How much later than `scheduled_at` this occurrence starts: in [0, spread), the same whenever it is asked."""
    if not spread:
        return spread
    micros = (scheduled_at - EPOCH) // _TICK
    digest = blake2b(job_id.bytes + micros.to_bytes(8, "big", signed=True), digest_size=8).digest()
    return _TICK * (int.from_bytes(digest, "big") * (spread // _TICK) >> 64)


def occurrences_of(expression: str, timezone: str, policies: Policies | None) -> Cron | Every | Allowed:
    """The instants that an expression names under these policies, not bounded by `start_at`, `end_at` and `max_runs`.

    Intervals count from `start_at` if there is one.
    """
    policies = policies or _DEFAULTS
    start_at = policies.start_at if is_every(expression) else None
    return _occurrences_of(expression, timezone, policies.gap, policies.fold, policies.exclude, start_at)


@lru_cache(maxsize=4096)
def _occurrences_of(
    expression: str, timezone: str, gap: Gap, fold: Fold, exclude: tuple[str, ...], start_at: datetime | None
) -> Cron | Every | Allowed:
    schedule = parse(expression, timezone, gap=gap, fold=fold)
    if isinstance(schedule, Every):
        schedule = replace(schedule, start_at=start_at)
    return Allowed(schedule, exclude) if exclude else schedule


def first(
    expression: str,
    timezone: str,
    policies: Policies | None,
    after: datetime,
    *,
    anchor: datetime | None = None,
    runs: int = 0,
    skips: Collection[datetime] = (),
) -> datetime | None:
    """The first occurrence strictly after an instant: `next_run_at` of a new, edited or resumed job. None: ended.

    `skips` are occurrences that were skipped by hand.
    """
    policies = policies or _DEFAULTS
    after = as_utc(after)
    if policies.start_at is not None:
        after = max(after, policies.start_at - _TICK)
    schedule = occurrences_of(expression, timezone, policies)
    at = schedule.next(after, anchor)
    while at is not None and at in skips:
        at = schedule.next(at, anchor)
    if at is None or at >= END or (policies.end_at is not None and at > policies.end_at):
        return None
    return None if policies.max_runs is not None and runs >= policies.max_runs else at


def between(
    expression: str,
    timezone: str,
    policies: Policies | None,
    low: datetime,
    high: datetime,
    *,
    anchor: datetime | None = None,
    limit: int = LIMIT,
) -> tuple[list[datetime], int | None]:
    """The first `limit` occurrences in [low, high] and how many there are: for filling a past range.

    None instead of a number: more are excluded than can be counted. Daylight saving and exclusions apply; the bounds of
    the schedule (`start_at`, `end_at`, `max_runs`) do not.
    """
    schedule = occurrences_of(expression, timezone, policies)
    after = as_utc(low) - _TICK
    found: list[datetime] = []
    if isinstance(schedule, Allowed):
        total, reached = schedule.count_some(after, as_utc(high), anchor)
        if reached < high:
            return [], None
    else:
        total = schedule.count(after, as_utc(high), anchor)
    at = schedule.next(after, anchor)
    while at is not None and at <= high and len(found) < limit:
        found.append(at)
        at = schedule.next(at, anchor)
    return found, total


def upcoming(
    expression: str,
    timezone: str,
    policies: Policies | None,
    after: datetime,
    n: int = 10,
    *,
    anchor: datetime | None = None,
    runs: int = 0,
    skips: Collection[datetime] = (),
) -> list[Run]:
    """The next n runs after an instant, fewer when the schedule ends; `runs` is how many it has had.

    Also fewer, but one, when exclusions leave so few that finding them takes more than a second.
    """
    schedule, where = occurrences_of(expression, timezone, policies), zone(timezone)
    since, deadline = as_utc(after), time.monotonic() + PATIENCE_S
    if policies is not None and policies.start_at is not None:
        since = max(since, policies.start_at - _TICK)
    coming: list[Run] = []
    while len(coming) < n and (not coming or time.monotonic() < deadline):
        at = first(expression, timezone, policies, since, anchor=anchor, runs=runs, skips=skips)
        if at is None:
            break
        coming.append(Run(at, at.astimezone(where), schedule.note(at, since)))
        since, runs = at, runs + 1
    return coming
