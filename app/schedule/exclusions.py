"""Times at which a job does not run: dates, and cron expressions read as a calendar, in the job's zone.

An excluded time is not an occurrence at all: it is neither run nor recorded, as with Temporal's calendars. An entry is
a date (`2026-12-25`, the whole local day) or a cron expression, which excludes every minute (with six fields: every
second) whose wall matches: `* 0-8 * * *` the time before nine, `* * 25 12 *` Christmas, `0 12 * * *` only 12:00.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from app.schedule.cron import Cron
from app.schedule.dates import EARLIEST, END
from app.schedule.errors import ScheduleError, shown
from app.schedule.every import Every, is_every
from app.schedule.fields import Fields
from app.schedule.grammar import check_text, parse_fields
from app.schedule.walls import offset, readings, shift_at, shift_between, wall_of
from app.schedule.zones import zone

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)
# So many excluded stretches in a row mean that nothing is left: a daily job gives up after 27 years.
_PATIENCE = 10_000
STRETCHES = 2_000
"""So many stretches are counted in a fraction of a second."""


def check_exclusion(entry: object, field: str, place: int) -> str:
    """One entry of `exclude`, without blanks around it. Raises ScheduleError naming `field`."""
    try:
        text = check_text(entry)
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
        else:
            _calendar(text)
    except ScheduleError as error:
        raise ScheduleError(field, f"entry {place}: {error.rule}") from None
    except ValueError:
        raise ScheduleError(field, f"entry {place}: {shown(entry)} is not a date of the calendar") from None
    return text


@lru_cache(maxsize=4096)
def _calendar(text: str) -> Fields:
    if is_every(text):
        raise ScheduleError("schedule.expression", "an interval cannot exclude; write a date or a cron expression")
    fields = parse_fields(text)
    if len(text.split()) == 6:
        return fields
    return parse_fields(" ".join(("*", *fields.words[1:])))


class Allowed:
    """The occurrences of a schedule outside of its exclusions. Answers as the schedule itself does."""

    def __init__(self, schedule: Cron | Every, entries: tuple[str, ...]) -> None:
        self.schedule = schedule
        self.zone: ZoneInfo = zone(schedule.timezone)
        self._dates = sorted(date.fromisoformat(entry) for entry in entries if _DATE.fullmatch(entry))
        self._calendars = [_calendar(entry) for entry in entries if not _DATE.fullmatch(entry)]
        # Exclusions follow real time: every instant whose wall matches.
        self._starts = [Cron("", fields, self.zone, "skip", "both") for fields in self._calendars]

    def next(self, after: datetime, anchor: datetime | None = None) -> datetime | None:
        """The first occurrence strictly after an instant; None when there is none within reach."""
        at = self.schedule.next(after, anchor)
        for _ in range(_PATIENCE):
            if at is None or at >= END:
                break
            if not (stretch := self._stretch(at)):
                return at
            at = self.schedule.next(stretch[1] - _TICK, anchor)
        return None

    def prev(self, before: datetime, anchor: datetime | None = None) -> datetime | None:
        """The last occurrence strictly before an instant."""
        at = self.schedule.prev(before, anchor)
        for _ in range(_PATIENCE):
            if at is None or at < EARLIEST:
                break
            if not (stretch := self._stretch(at)):
                return at
            at = self.schedule.prev(stretch[0], anchor)
        return None

    def count(self, after: datetime, until: datetime, anchor: datetime | None = None) -> int:
        """How many occurrences lie in (after, until]; visits each excluded stretch, not each occurrence."""
        total = 0
        while after < until:
            counted, after = self.count_some(after, until, anchor)
            total += counted
        return total

    def count_some(self, after: datetime, until: datetime, anchor: datetime | None = None) -> tuple[int, datetime]:
        """The same as far as STRETCHES of them allow, and how far that is."""
        total = 0
        for _ in range(STRETCHES):
            at = self.schedule.next(after, anchor)
            if at is None or at > until:
                return total, until
            if stretch := self._stretch(at):
                after = stretch[1] - _TICK
                continue
            free_until = min(self._next_excluded(at) - _TICK, until)
            total += self.schedule.count(after, free_until, anchor)
            after = free_until
        return total, min(after, until)

    def note(self, at: datetime, since: datetime | None = None) -> str | None:
        return self.schedule.note(at, since)

    def _stretch(self, at: datetime) -> tuple[datetime, datetime] | None:
        """An excluded stretch [from, to) around an instant, or None; the exclusion may go on before and behind it."""
        wall = wall_of(at, self.zone).replace(fold=0)
        length = max((_unit(fields) for fields in self._calendars if fields.matches(wall)), default=None)
        if wall.date() in self._dates:
            length = _DAY
        if length is None:
            return None
        low = at - (wall - wall.replace(hour=0, minute=0, second=0, microsecond=0)) % length
        high = low + length
        second = at.replace(microsecond=0)
        if offset(low, self.zone) != offset(at, self.zone):
            low = shift_between(low.replace(microsecond=0), second, self.zone).instant
        if offset(high, self.zone) != offset(at, self.zone):
            high = shift_between(second, high, self.zone).instant
        return low, high

    def _next_excluded(self, at: datetime) -> datetime:
        """The first excluded instant after an instant that is not excluded."""
        starts = [start for cron in self._starts if (start := cron.compute_next(at))]
        today = wall_of(at, self.zone).date()
        if (place := bisect_right(self._dates, today)) < len(self._dates):
            midnight = datetime.combine(self._dates[place], time.min)
            shift = shift_at(midnight, self.zone)
            starts.append(shift.instant if shift and shift.gap else readings(midnight, self.zone)[0])
        return min(starts, default=datetime.max.replace(tzinfo=UTC))


def _unit(fields: Fields) -> timedelta:
    """The longest stretch of the clock that a matching calendar surely excludes."""
    if len(fields.seconds) < 60:
        return timedelta(seconds=1)
    if len(fields.minutes) < 60:
        return timedelta(minutes=1)
    return timedelta(hours=1) if len(fields.hours) < 24 else _DAY
