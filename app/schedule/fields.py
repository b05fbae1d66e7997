"""The fields of a cron expression as sets of numbers: which days match, which times, how many, and the next one.

Everything here is about walls (datetimes without zone); what a zone does to them is in `cron`.
"""

# ruff: noqa: DTZ001, DTZ901 - walls have no zone by their nature

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import product

LAST = -1
"""Stands for "the last one of the month": a day in `days`, a count in `nths`."""

_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LAST_SECOND = datetime.max.replace(microsecond=0)


@dataclass(frozen=True)
class Fields:
    """A parsed expression. Numbers are as in cron: months 1–12, weekdays 0 (Sunday) – 6."""

    words: tuple[str, ...]
    """Six words, seconds first, upper case: what a person wrote, macros written out."""
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    nearest: frozenset[int]
    """Days whose nearest weekday (Monday to Friday) is meant; LAST for the last weekday of the month."""
    months: frozenset[int]
    weekdays: frozenset[int]
    nths: frozenset[tuple[int, int]]
    """(weekday, which): the second Friday of a month is (5, 2), the last one (5, LAST)."""
    _days_of: dict[tuple[int, int, int], tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def follows_real_time(self) -> bool:
        """Debian's rule: a minute or hour field that starts with `*` means an interval, not times of day."""
        return self.words[1].startswith("*") or self.words[2].startswith("*")

    @property
    def both_days(self) -> bool:
        """Vixie's rule: both day fields must match when one starts with `*`, otherwise either does."""
        return self.words[3][0] in "*?" or self.words[5][0] in "*?"

    def days_of(self, year: int, month: int) -> tuple[int, ...]:
        """The matching days of a month, in order."""
        if month not in self.months:
            return ()
        start = date(year, month, 1).weekday()
        key = (month, monthrange(year, month)[1] if month == 2 else _LENGTHS[month], start)
        found = self._days_of.get(key)
        if found is None:
            found = self._days_of[key] = tuple(self._matching_days(key[1], start))
        return found

    def _matching_days(self, length: int, start: int) -> Iterator[int]:
        nearest = {_nearest_weekday(length if day == LAST else min(day, length), length, start) for day in self.nearest}
        for day in range(1, length + 1):
            weekday = (start + day) % 7  # `start` counts from Monday, cron from Sunday
            of_month = day in self.days or day in nearest or (day == length and LAST in self.days)
            of_week = (
                weekday in self.weekdays
                or (weekday, (day + 6) // 7) in self.nths
                or (day + 7 > length and (weekday, LAST) in self.nths)
            )
            if (of_month and of_week) if self.both_days else (of_month or of_week):
                yield day

    def ever(self) -> bool:
        """Whether any month of the calendar has a matching day. All its kinds of months come up within 400 years."""
        lengths = {month: {28, 29} if month == 2 else {_LENGTHS[month]} for month in self.months}
        return any(
            next(self._matching_days(length, start), None) is not None
            for month in self.months
            for length, start in product(lengths[month], range(7))
        )

    # Times: walls without microseconds.

    def at_or_after(self, wall: datetime) -> datetime | None:
        """The first matching wall that is not before this one; None at the end of the calendar."""
        if wall.microsecond:
            if wall >= _LAST_SECOND:
                return None
            wall = wall.replace(microsecond=0) + timedelta(seconds=1)
        year, month, day = wall.year, wall.month, wall.day
        if day in self.days_of(year, month) and (time := self._time_from(wall.hour, wall.minute, wall.second)):
            return datetime(year, month, day, *time)
        while True:
            days = self.days_of(year, month)
            if (at := bisect_right(days, day)) < len(days):
                return datetime(year, month, days[at], self.hours[0], self.minutes[0], self.seconds[0])
            month, day = month + 1, 0
            if month > 12:
                year, month = year + 1, 1
                if year > 9999:
                    return None

    def before(self, wall: datetime) -> datetime | None:
        """The last matching wall before this one; None at the beginning of the calendar."""
        if wall.microsecond:
            wall = wall.replace(microsecond=0)  # this very second is before it
        elif wall == datetime.min:
            return None
        else:
            wall -= timedelta(seconds=1)
        year, month, day = wall.year, wall.month, wall.day
        if day in self.days_of(year, month) and (time := self._time_to(wall.hour, wall.minute, wall.second)):
            return datetime(year, month, day, *time)
        while True:
            days = self.days_of(year, month)
            if at := bisect_left(days, day):
                return datetime(year, month, days[at - 1], self.hours[-1], self.minutes[-1], self.seconds[-1])
            month, day = month - 1, 32
            if month < 1:
                year, month = year - 1, 12
                if year < 1:
                    return None

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.day in self.days_of(wall.year, wall.month)
        )

    def count(self, low: datetime, high: datetime) -> int:
        """How many walls match in [low, high), without visiting them."""
        return self._rank(high, low.year) - self._rank(low, low.year) if high > low else 0

    def _rank(self, wall: datetime, since: int) -> int:
        """How many walls match from the start of the year `since` to before this one."""
        if wall.microsecond:
            wall = wall.replace(microsecond=0) + timedelta(seconds=1)
        days = sum(
            len(self.days_of(year, month))
            for year in range(since, wall.year + 1)
            for month in range(1, 13 if year < wall.year else wall.month)
        )
        of_month = self.days_of(wall.year, wall.month)
        at = bisect_left(of_month, wall.day)
        hours, minutes, seconds = len(self.hours), len(self.minutes), len(self.seconds)
        rank = (days + at) * hours * minutes * seconds
        if at < len(of_month) and of_month[at] == wall.day:
            hour = bisect_left(self.hours, wall.hour)
            rank += hour * minutes * seconds
            if wall.hour in self.hours:
                minute = bisect_left(self.minutes, wall.minute)
                rank += minute * seconds
                if wall.minute in self.minutes:
                    rank += bisect_left(self.seconds, wall.second)
        return rank

    def _time_from(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        at = bisect_left(hours, hour)
        if at == len(hours):
            return None
        if hours[at] > hour:
            return hours[at], minutes[0], seconds[0]
        if (near := bisect_left(minutes, minute)) < len(minutes):
            if minutes[near] > minute:
                return hour, minutes[near], seconds[0]
            if (close := bisect_left(seconds, second)) < len(seconds):
                return hour, minute, seconds[close]
            if near + 1 < len(minutes):
                return hour, minutes[near + 1], seconds[0]
        return (hours[at + 1], minutes[0], seconds[0]) if at + 1 < len(hours) else None

    def _time_to(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        at = bisect_right(hours, hour)
        if at == 0:
            return None
        if hours[at - 1] < hour:
            return hours[at - 1], minutes[-1], seconds[-1]
        if near := bisect_right(minutes, minute):
            if minutes[near - 1] < minute:
                return hour, minutes[near - 1], seconds[-1]
            if close := bisect_right(seconds, second):
                return hour, minute, seconds[close - 1]
            if near > 1:
                return hour, minutes[near - 2], seconds[-1]
        return (hours[at - 2], minutes[-1], seconds[-1]) if at > 1 else None


def _nearest_weekday(day: int, length: int, start: int) -> int:
    """The weekday nearest to a day without leaving its month, as Quartz and croniter have it."""
    weekday = (start + day - 1) % 7  # Monday is 0
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < length else day - 2
    return day
