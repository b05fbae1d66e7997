"""One-off dates: ISO 8601 with an offset, or local time with a zone. Nothing else: no epochs, no guesses.

Of the many shapes of ISO 8601 the one that is read the same everywhere, `2026-03-08T02:30:00.5+01:00`: seconds, their
fraction (nine digits at most) and the minutes of the offset may be left out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from app.schedule.errors import ScheduleError, shown
from app.schedule.notes import clock_time
from app.schedule.walls import shift_at
from app.schedule.zones import zone

FIELD = "schedule.date"
YEARS_AHEAD = 10
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
END = datetime(2200, 1, 1, tzinfo=UTC)
"""What is stored lies from EARLIEST to before END, in SQL, too."""

# The same in `pgtick.read_instant`.
_ISO = re.compile(
    r"(?P<wall>\d{4}-\d\d-\d\d[Tt ](?P<hour>\d\d):\d\d(?::\d\d(?:\.(?P<fraction>\d{1,9}))?)?)"
    r"(?P<offset>[Zz]|[+-](?:0\d|1[0-5])(?::?[0-5]\d)?)?",
    re.ASCII,
)


def parse_date(value: object, timezone: str | None, now: datetime, *, field: str = FIELD) -> tuple[datetime, list[str]]:
    """The instant in UTC that a user means, exact to the microsecond, and warnings about what was decided for them.

    A past date is fine: it runs at once, and what is before the year 2000 is as good as its beginning. An offset in the
    date decides; without one, `timezone` does: a time that the zone's clock jumps over is taken at the jump, one that
    it shows twice at the first, each with a warning.
    Raises ScheduleError naming `field`, or `schedule.timezone`.
    """
    where = None if timezone is None else zone(timezone)
    local, warnings = _read(value, field)
    try:
        if local.tzinfo is not None:
            instant = local.astimezone(UTC)
        elif where is not None:
            instant = _place(local, where, warnings)
        else:
            raise ScheduleError(field, f"{shown(value)} has no offset; add one such as Z or +02:00, or name a timezone")
    except OverflowError:  # at the ends of the calendar
        instant = EARLIEST if local.year == 1 else END
    if instant > _years_after(now):
        raise ScheduleError(field, f"{shown(value)} is more than {YEARS_AHEAD} years ahead")
    return max(instant, EARLIEST), warnings


def _place(local: datetime, where: ZoneInfo, warnings: list[str]) -> datetime:
    shift = shift_at(local, where)
    if shift is None:
        return local.replace(tzinfo=where).astimezone(UTC)
    if shift.gap:
        warnings.append(
            f"clock jumps forward: {clock_time(local)} does not exist on {local:%Y-%m-%d} in {where}, "
            f"taken at {clock_time(shift.high)}"
        )
        return shift.instant
    warnings.append(
        f"clock goes back: {clock_time(local)} happens twice on {local:%Y-%m-%d} in {where}, taken at the first"
    )
    return local.replace(tzinfo=where).astimezone(UTC)


def parse_instant(value: object, field: str) -> datetime:
    """An instant to compare with: ISO 8601 with an offset, at any distance."""
    local, _ = _read(value, field)
    if local.tzinfo is None:
        raise ScheduleError(field, f"{shown(value)} has no offset; add one such as Z or +02:00")
    try:
        return local.astimezone(UTC)
    except OverflowError:
        raise ScheduleError(field, f"{shown(value)} is outside the years 1 to 9999 in UTC") from None


def parse_storable(value: object, field: str) -> datetime:
    """An instant that can be stored, and that schedules can be at."""
    at = parse_instant(value, field)
    if not EARLIEST <= at < END:
        raise ScheduleError(field, f"{shown(value)} is not in the years {EARLIEST.year} to {END.year - 1}")
    return at


def _read(value: object, field: str) -> tuple[datetime, list[str]]:
    if not isinstance(value, str):
        raise ScheduleError(field, f"a date is a string such as 2026-03-08T02:30:00Z, not {_kind(value)}")
    found = _ISO.fullmatch(value)
    if not found:
        raise ScheduleError(field, f"{shown(value)} is not a date and time in ISO 8601, such as 2026-03-08T02:30:00Z")
    fraction = found["fraction"] or ""
    try:
        local = datetime.fromisoformat((found["wall"][:26] + (found["offset"] or "")).upper())
    except ValueError as error:
        raise ScheduleError(field, f"{shown(value)} is not on the calendar or the clock: {error}") from None
    if local.hour != int(found["hour"]):  # some versions of Python read 24:00 as the next day
        raise ScheduleError(field, f"{shown(value)} is not on the clock: hours are 00 to 23")
    beyond = ["digits beyond microseconds were dropped"] if fraction[6:].strip("0") else []
    return local, beyond


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number (epochs are not accepted)"
    return f"{type(value).__name__}"


def _years_after(now: datetime) -> datetime:
    now = now.astimezone(UTC)
    try:
        return now.replace(year=now.year + YEARS_AHEAD)
    except ValueError:  # 29 February, or the end of the calendar
        return min(now, datetime.max.replace(tzinfo=UTC) - timedelta(days=3_660)) + timedelta(days=3_653)
