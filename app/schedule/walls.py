"""Between instants and the clock on the wall: what a zone does when its clock jumps forward (gap) or back (fold).

A wall is a datetime without zone. In a fold two instants show the same wall; in a gap no instant shows it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class Shift(NamedTuple):
    """One change of a zone's offset to UTC, at `instant`; in seconds exact."""

    instant: datetime
    before: timedelta
    after: timedelta

    @property
    def gap(self) -> bool:
        return self.after > self.before

    @property
    def low(self) -> datetime:
        """First wall that the jump leaves out (gap) or shows twice (fold)."""
        return self.instant.replace(tzinfo=None) + min(self.before, self.after)

    @property
    def high(self) -> datetime:
        """First wall after those."""
        return self.instant.replace(tzinfo=None) + max(self.before, self.after)

    def swallows_date_of(self, wall: datetime) -> bool:
        """Whether the whole date of a wall in this gap does not exist (Apia left out 30 December 2011)."""
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        return self.gap and self.low <= midnight and self.high - midnight >= _DAY


def as_utc(instant: datetime) -> datetime:
    """The same instant in UTC; ValueError for a datetime without zone."""
    # Also before a memo is asked: datetimes of one zone compare equal in both passes of a fold.
    if instant.tzinfo is UTC:
        return instant
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no zone")
    return instant.astimezone(UTC)


def offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    """What the zone adds to UTC at an instant."""
    return _known(instant.astimezone(zone).utcoffset())


def wall_of(instant: datetime, zone: ZoneInfo) -> datetime:
    """What the wall shows at an instant; `fold` is 1 when it shows it for the second time."""
    return instant.astimezone(zone).replace(tzinfo=None)


def readings(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The two readings of a wall as instants in UTC (PEP 495, fold 0 and 1).

    Equal on ordinary days; the first is earlier in a fold, and later in a gap.
    """
    local = wall.replace(tzinfo=zone, fold=0)
    first = _known(local.utcoffset())
    second = _known(local.replace(fold=1).utcoffset())
    wall = wall.replace(tzinfo=UTC, fold=0)
    return wall - first, wall - second


def shift_between(low: datetime, high: datetime, zone: ZoneInfo) -> Shift:
    """The change of offset in (low, high], which must hold exactly one."""
    before, after = offset(low, zone), offset(high, zone)
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if offset(middle, zone) == before:
            low = middle
        else:
            high = middle
    return Shift(high, before, after)


def shift_at(wall: datetime, zone: ZoneInfo) -> Shift | None:
    """The jump that leaves this wall out or shows it twice; None on ordinary walls."""
    first, second = readings(wall.replace(microsecond=0), zone)
    if first == second:
        return None
    return shift_between(min(first, second) - _SECOND, max(first, second), zone)


def shifts(zone: ZoneInfo, after: datetime, until: datetime) -> list[Shift]:
    """All changes of offset in (after, until], in order."""
    found = [shift for year in range(after.year, until.year + 1) for shift in _shifts_of(zone, year)]
    return [shift for shift in found if after < shift.instant <= until]


@lru_cache(maxsize=4096)
def _shifts_of(zone: ZoneInfo, year: int) -> tuple[Shift, ...]:
    found = []
    low = datetime(year, 1, 1, tzinfo=UTC) - _SECOND if year > 1 else datetime(1, 1, 3, tzinfo=UTC)
    end = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    while low < end:
        # Near the end of time the wall of the next day may not be representable; nothing changes there.
        high = min(low + _DAY, end)
        if high > _LAST:
            break
        if offset(low, zone) != offset(high, zone):
            found.append(shift_between(low, high, zone))
        low = high
    return tuple(found)


_LAST = datetime.max.replace(tzinfo=UTC) - 2 * _DAY


def _known(value: timedelta | None) -> timedelta:
    assert value is not None  # a ZoneInfo always answers for a full datetime
    return value
