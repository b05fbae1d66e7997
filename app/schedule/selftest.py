"""Checks at start that the installed croniter and tzdata give the right instants; a worker refuses to plan otherwise.

The rows use clock changes that have happened: what governments decide about coming ones must not stop a worker.
"""

from __future__ import annotations

from datetime import datetime

from app.schedule.cron import parse
from app.schedule.errors import ScheduleError

# Expression, zone, start, and the instants that follow it; none: the expression must be refused.
_ROWS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    # A fixed time in the hour that repeats runs once, in the hour that is missing at the jump.
    ("30 1 * * *", "America/New_York", "2025-11-01T16:00Z", ("2025-11-02T05:30Z", "2025-11-03T06:30Z")),
    ("30 2 * * *", "America/New_York", "2025-03-08T17:00Z", ("2025-03-09T07:00Z", "2025-03-10T06:30Z")),
    ("0 2,3 * * *", "America/New_York", "2025-03-08T17:00Z", ("2025-03-09T07:00Z", "2025-03-10T06:00Z")),
    ("5 2 * * *", "Europe/Berlin", "2024-10-26T10:00Z", ("2024-10-27T00:05Z", "2024-10-28T01:05Z")),
    ("30 1 * * *", "Europe/Dublin", "2025-03-29T12:00Z", ("2025-03-30T01:00Z", "2025-03-31T00:30Z")),
    ("0 0 * * *", "America/Santiago", "2025-09-06T16:00Z", ("2025-09-07T04:00Z", "2025-09-08T03:00Z")),
    ("30 0 * * *", "America/Havana", "2024-11-02T16:00Z", ("2024-11-03T04:30Z", "2024-11-04T05:30Z")),
    ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T01:30Z", ("2025-10-04T15:30Z", "2025-10-05T15:15Z")),
    # A date that never was.
    ("0 9 * * *", "Pacific/Apia", "2011-12-29T22:00Z", ("2011-12-30T19:00Z", "2011-12-31T19:00Z")),
    # Expressions with `*` in minute or hour follow real time.
    ("*/15 1-2 * * *", "America/New_York", "2025-03-09T06:30Z", ("2025-03-09T06:45Z", "2025-03-10T05:00Z")),
    ("30 * * * *", "Europe/Helsinki", "2024-10-26T23:45Z", ("2024-10-27T00:30Z", "2024-10-27T01:30Z")),
    # How fields are read.
    ("0 0 1-7 * */7", "UTC", "2026-01-01T00:00Z", ("2026-01-04T00:00Z", "2026-02-01T00:00Z")),
    ("0 0 13 * 5", "UTC", "2026-01-01T00:00Z", ("2026-01-02T00:00Z", "2026-01-09T00:00Z", "2026-01-13T00:00Z")),
    ("0 22-2/2 * * *", "UTC", "2026-01-01T03:00Z", ("2026-01-01T22:00Z", "2026-01-02T00:00Z", "2026-01-02T02:00Z")),
    ("0 0 * * 5-7", "UTC", "2026-01-01T00:00Z", ("2026-01-02T00:00Z", "2026-01-03T00:00Z", "2026-01-04T00:00Z")),
    ("0 0 L * *", "UTC", "2028-01-15T00:00Z", ("2028-01-31T00:00Z", "2028-02-29T00:00Z")),
    ("0 0 * * 5#5", "UTC", "2026-01-01T00:00Z", ("2026-01-30T00:00Z", "2026-05-29T00:00Z")),
    ("0 0 29 2 *", "UTC", "2096-03-01T00:00Z", ("2104-02-29T00:00Z",)),
    ("*/20 * * * * *", "UTC", "2026-01-01T00:00Z", ("2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z")),
    ("@every 90s", "UTC", "2026-01-01T00:00Z", ("2026-01-01T00:01:30Z", "2026-01-01T00:03Z")),
    ("0 0 30 2 *", "UTC", "2026-01-01T00:00Z", ()),
    ("*/61 * * * *", "UTC", "2026-01-01T00:00Z", ()),
)


def self_test() -> list[str]:
    """A sentence for each row that comes out wrong; empty when all is well."""
    return [failure for row in _ROWS if (failure := _failure(*row))]


def _failure(expression: str, timezone: str, start: str, expected: tuple[str, ...]) -> str | None:
    try:
        schedule = parse(expression, timezone)
    except ScheduleError as error:
        return f"{expression!r} in {timezone} is refused: {error.rule}" if expected else None
    if not expected:
        return f"{expression!r} in {timezone} is accepted"
    at: datetime | None = datetime.fromisoformat(start)
    for instant in map(datetime.fromisoformat, expected):
        before, at = at, at and schedule.next(at)
        if at != instant:
            return f"{expression!r} in {timezone} after {before} is {at}, not {instant}"
    return None
