"""How busy the coming hours are: starts per hour of many schedules, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from app.schedule.cron import as_utc, parse
from app.schedule.errors import ScheduleError

HOUR = timedelta(hours=1)
_TICK = timedelta(microseconds=1)


class Busy(NamedTuple):
    hours: list[int]
    """Starts in each hour."""
    left: int
    """Jobs that were not counted for want of time; the next call, which remembers the others, gets further."""


def starts_per_hour(
    schedules: Iterable[tuple[str, str, int]], start: datetime, hours: int, *, budget_s: float = 0.04
) -> Busy:
    """Of (expression, timezone, number of jobs with them), from `start` on. Policies are not taken into account."""
    totals, left = [0] * hours, 0
    start, deadline = as_utc(start), time.monotonic() + budget_s
    for expression, timezone, jobs in schedules:
        if time.monotonic() > deadline:
            left += jobs
            continue
        for hour, starts in _starts(expression, timezone, start, hours):
            totals[hour] += starts * jobs
    return Busy(totals, left)


@lru_cache(maxsize=10_000)
def _starts(expression: str, timezone: str, start: datetime, hours: int) -> tuple[tuple[int, int], ...]:
    """The hours that have starts, and how many; none of what is no schedule."""
    try:
        schedule = parse(expression, timezone)
    except ScheduleError:
        return ()
    found = []
    end = start + hours * HOUR - _TICK
    at = schedule.next(start - _TICK)
    while at is not None and at <= end:
        hour = (at - start) // HOUR
        last = start + (hour + 1) * HOUR - _TICK
        found.append((hour, 1 + schedule.count(at, last)))
        at = schedule.next(last)
    return tuple(found)
