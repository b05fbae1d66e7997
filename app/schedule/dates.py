"""One-off dates: ISO 8601 with an offset, or local time with a zone. Nothing else: no epochs, no guesses."""

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
_MAX_LENGTH = 64

# Extended and basic format, calendar and week dates; what fromisoformat makes of it differs between Python versions
# only outside of this.
_ISO = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d|\d{8}|\d{4}-W\d\d-[1-7]|\d{4}W\d\d[1-7])"
    r"[Tt ](?P<time>\d\d:\d\d(?::\d\d)?|\d{4}(?:\d\d)?)(?:[.,](?P<fraction>\d{1,12}))?"
    r"(?P<offset>[Zz]|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)


def parse_date(value: object, timezone: str | None, now: datetime, *, field: str = FIELD) -> tuple[datetime, list[str]]:
    """The instant in UTC that a user means, exact to the microsecond, and warnings about what was decided for them.

    A past date is fine: it runs at once. An offset in the date decides; without one, `timezone` does: a time that the
    zone's clock jumps over is taken at the jump, one that it shows twice at the first, each with a warning.
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
    except OverflowError:
        raise ScheduleError(field, f"{shown(value)} is outside the years 1 to 9999 in UTC") from None
    if instant > _years_after(now):
        raise ScheduleError(field, f"{shown(value)} is more than {YEARS_AHEAD} years ahead")
    return instant, warnings


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
    """An instant for a policy: ISO 8601 with an offset, at any distance."""
    local, _ = _read(value, field)
    if local.tzinfo is None:
        raise ScheduleError(field, f"{shown(value)} has no offset; add one such as Z or +02:00")
    try:
        return local.astimezone(UTC)
    except OverflowError:
        raise ScheduleError(field, f"{shown(value)} is outside the years 1 to 9999 in UTC") from None


def _read(value: object, field: str) -> tuple[datetime, list[str]]:
    if not isinstance(value, str):
        raise ScheduleError(field, f"a date is a string such as 2026-03-08T02:30:00Z, not {_kind(value)}")
    found = _ISO.fullmatch(value) if len(value) <= _MAX_LENGTH else None
    if not found:
        raise ScheduleError(field, f"{shown(value)} is not a date and time in ISO 8601, such as 2026-03-08T02:30:00Z")
    fraction = found["fraction"] or ""
    if fraction and len(found["time"]) in (4, 5):
        raise ScheduleError(field, f"{shown(value)} has a fraction without seconds")
    text = f"{found['date']}T{found['time']}" + (f".{fraction[:6]:0<6}" if fraction else "") + (found["offset"] or "")
    try:
        local = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ScheduleError(field, f"{shown(value)} is not on the calendar or the clock: {error}") from None
    if local.hour != int(found["time"][:2]):  # some versions of Python read 24:00 as the next day
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
