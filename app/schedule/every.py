"""Intervals, `@every 1h30m`: a grid of instants anchor + k × interval, the same in every zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.schedule.errors import ScheduleError, shown
from app.schedule.walls import as_utc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELD = "schedule.expression"
_PREFIX = "@every"
_PART = re.compile(r"(\d{1,9})(w|d|h|m|s)", re.ASCII)
_WHOLE = re.compile(r"(?:\d{1,9}[wdhms])+", re.ASCII)
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NAMES = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second"}
_LONGEST = 3_660 * 86_400


@dataclass(frozen=True)
class Every:
    """An interval of whole seconds, at least one."""

    expression: str
    timezone: str
    seconds: int
    start_at: datetime | None = None
    """Where the grid begins, whatever `anchor` a call gives."""

    @property
    def interval(self) -> timedelta:
        return timedelta(seconds=self.seconds)

    def next(self, after: datetime, anchor: datetime | None = None) -> datetime | None:
        """The first grid point strictly after `after`, in UTC. The grid goes through `anchor`, the epoch by default."""
        anchor, after = self._anchor(anchor), as_utc(after)
        try:
            return anchor + self.interval * ((after - anchor) // self.interval + 1)
        except OverflowError:
            return None

    def prev(self, before: datetime, anchor: datetime | None = None) -> datetime | None:
        """The last grid point strictly before `before`, in UTC."""
        anchor, before = self._anchor(anchor), as_utc(before)
        try:
            return anchor - self.interval * ((anchor - before) // self.interval + 1)
        except OverflowError:
            return None

    def count(self, after: datetime, until: datetime, anchor: datetime | None = None) -> int:
        """How many grid points there are in (after, until]."""
        anchor = self._anchor(anchor)
        return max(0, (until - anchor) // self.interval - (after - anchor) // self.interval)

    def _anchor(self, anchor: datetime | None) -> datetime:
        return as_utc(self.start_at or anchor or EPOCH)

    def note(self, at: datetime, since: datetime | None = None) -> str | None:
        """Intervals know no daylight saving."""
        return None

    def describe(self) -> str:
        """`every 90 seconds`, `every 1 hour 30 minutes`."""
        left, parts = self.seconds, []
        for unit, size in _SECONDS.items():
            amount, left = divmod(left, size)
            if amount:
                parts.append((amount, _NAMES[unit]))
        if len(parts) == 1 and parts[0][0] == 1:
            return f"every {parts[0][1]}"
        return "every " + " ".join(f"{amount} {name}{'s' if amount > 1 else ''}" for amount, name in parts)


def is_every(expression: str) -> bool:
    return "@" in expression and expression.lstrip(" \t")[: len(_PREFIX)].casefold() == _PREFIX


def parse_every(expression: str, timezone: str) -> Every:
    """Reads `@every 30s`, `@every 1h30m`; units w, d, h, m, s. Raises ScheduleError."""
    text = expression[len(_PREFIX) :]
    interval = text.strip(" \t").lower()
    if text[:1] not in (" ", "\t") or not _WHOLE.fullmatch(interval):
        raise ScheduleError(_FIELD, f"{shown(expression)} is not an interval; write @every 30s or @every 1h30m")
    seconds = sum(int(amount) * _SECONDS[unit] for amount, unit in _PART.findall(interval))
    if not 1 <= seconds <= _LONGEST:
        raise ScheduleError(_FIELD, f"{shown(expression)}: an interval is at least 1 s and at most 10 years")
    return Every(expression, timezone, seconds)
