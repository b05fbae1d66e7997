"""How busy the coming time is: starts per hour or minute of many schedules, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from app.schedule.cron import parse
from app.schedule.errors import ScheduleError
from app.schedule.walls import as_utc

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_TICK = timedelta(microseconds=1)

Grids = Iterable[tuple[str, str, int]]
"""Expressions with their timezone, and the number of jobs that have both."""
_Count = Callable[[str, str, datetime, timedelta, int], tuple[tuple[int, int], ...]]


class Busy(NamedTuple):
    starts: list[int]
    """In each hour or minute. Herds show as peaks."""
    left: int
    """Jobs that were not counted for want of time."""


def starts_per_hour(grids: Grids, start: datetime, hours: int, *, budget_s: float = 0.04) -> Busy:
    """Of so many hours from `start` on. Policies are not taken into account; intervals count from the epoch.

    What was counted is remembered: when there was no time for all, the next call gets further.
    """
    return _busy(_remembered, grids, start, _HOUR, hours, budget_s)


def starts_per_minute(grids: Grids, start: datetime, minutes: int, *, budget_s: float = 1.0) -> Busy:
    """The same by the minute; nothing is remembered, for each of these takes 60 times the room."""
    return _busy(_count, grids, start, _MINUTE, minutes, budget_s)


def _busy(count: _Count, grids: Grids, start: datetime, span: timedelta, n: int, budget_s: float) -> Busy:
    totals, left = [0] * n, 0
    start, deadline = as_utc(start), time.monotonic() + budget_s
    for expression, timezone, jobs in grids:
        if time.monotonic() > deadline:
            left += jobs
            continue
        for place, starts in count(expression, timezone, start, span, n):
            totals[place] += starts * jobs
    return Busy(totals, left)


def _count(expression: str, timezone: str, start: datetime, span: timedelta, n: int) -> tuple[tuple[int, int], ...]:
    """The spans that have starts, and how many; none of what is no schedule."""
    try:
        schedule = parse(expression, timezone)
    except ScheduleError:
        return ()
    found = []
    end = start + n * span - _TICK
    at = schedule.next(start - _TICK)
    while at is not None and at <= end:
        place = (at - start) // span
        last = start + (place + 1) * span - _TICK
        found.append((place, 1 + schedule.count(at, last)))
        at = schedule.next(last)
    return tuple(found)


_remembered = lru_cache(maxsize=10_000)(_count)
