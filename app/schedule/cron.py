"""Cron in any time zone: the next instant, the one before, how many lie between, and what is odd about one.

Rules (Debian's cron): an expression whose minute or hour field starts with `*` follows real time, so it runs at every
instant whose wall matches. Any other names times of day and runs once per matching local date: in a gap (the clock
jumps forward over it) at the instant of the jump, in a fold (the clock shows it twice) at the first. The policies
`gap` and `fold` change that for the second kind. A date that a zone left out altogether has no run.

Both kinds are one computation: walls that match, each placed on the line of instants. Real time is "leave gaps out,
take both readings of a fold".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Literal
from zoneinfo import ZoneInfo

from app.schedule.describe import describe
from app.schedule.errors import one_of
from app.schedule.every import Every, is_every, parse_every
from app.schedule.fields import Fields
from app.schedule.grammar import check_text, parse_fields
from app.schedule.notes import daylight_note
from app.schedule.walls import Shift, as_utc, readings, shift_at, shift_between, shifts, wall_of
from app.schedule.zones import zone

Gap = Literal["run_at_transition", "skip"]
Fold = Literal["first", "second", "both"]
GAPS: tuple[Gap, ...] = ("run_at_transition", "skip")
FOLDS: tuple[Fold, ...] = ("first", "second", "both")

_TICK = timedelta(microseconds=1)
_DAY = timedelta(days=1)
# Near the ends of the calendar not every instant has a wall, nor every wall an instant.
_EARLIEST = datetime.min.replace(tzinfo=UTC) + 3 * _DAY
_LATEST = datetime.max.replace(tzinfo=UTC) - 3 * _DAY
_FIRST, _SECOND = 0, 1  # readings of a wall that is shown twice, as in PEP 495


class Cron:
    """A cron expression in a zone. Immutable; made by `parse`."""

    def __init__(self, expression: str, fields: Fields, where: ZoneInfo, gap: Gap, fold: Fold) -> None:
        self.expression = expression
        self.timezone = str(where)
        self.gap: Gap = gap
        self.fold: Fold = fold
        self.fields = fields
        self.zone = where
        self.real_time = fields.follows_real_time
        self._runs_in_gaps = gap == "run_at_transition" and not self.real_time
        self._takes: Fold = "both" if self.real_time else fold

    def next(self, after: datetime, anchor: datetime | None = None) -> datetime | None:
        """The first instant strictly after `after` (aware, any zone), in UTC; None when the calendar ends before it.

        `anchor` is for intervals and changes nothing here.
        """
        return next_run(self.expression, self.timezone, as_utc(after), self.gap, self.fold)

    def prev(self, before: datetime, anchor: datetime | None = None) -> datetime | None:
        """The last instant strictly before `before`, in UTC; None when there is none in the calendar."""
        before = as_utc(before)
        try:
            local = before.astimezone(self.zone)
            if self._takes != "both":
                return self._before(before, local, _FIRST if self._takes == "first" else _SECOND)
            latest = self._before(before, local, _SECOND)
            if _ambiguous(local):
                return max(filter(None, (latest, self._before(before, local, _FIRST))), default=None)
            return latest
        except OverflowError:  # within a day of the ends of the calendar
            return None

    def count(self, after: datetime, until: datetime, anchor: datetime | None = None) -> int:
        """How many instants lie in (after, until], without visiting them: three days of seconds cost microseconds."""
        after, until = max(as_utc(after), _EARLIEST), min(as_utc(until), _LATEST)
        if until <= after:
            return 0
        near = shifts(self.zone, after - _DAY, until + _DAY)
        total = self._matching(after, until, near)
        for shift in near:
            if shift.gap:
                if self._runs_in_gaps and after < shift.instant <= until and self._adds_run(shift):
                    total += 1
                continue
            length = shift.high - shift.low
            if self._takes == "first":
                left_out = (shift.instant, shift.instant + length)
            elif self._takes == "second":
                left_out = (shift.instant - length, shift.instant)
            else:
                continue
            # The bounds are [from, to) here and (after, until] outside.
            total -= self._matching(max(after, left_out[0] - _TICK), min(until, left_out[1] - _TICK), near)
        return total

    def note(self, at: datetime, since: datetime | None = None) -> str | None:
        """What daylight saving did to the run at `at`, or to what would have been between `since` and it."""
        return daylight_note(self, as_utc(at), None if since is None else as_utc(since))

    def describe(self) -> str:
        """The expression in plain English."""
        return describe(self.fields)

    def compute_next(self, after: datetime) -> datetime | None:
        """`next` without the memo; `after` is in UTC."""
        try:
            local = after.astimezone(self.zone)
            if self._takes != "both":
                return self._after(after, local, _FIRST if self._takes == "first" else _SECOND)
            earliest = self._after(after, local, _FIRST)
            if _ambiguous(local):
                return min(filter(None, (earliest, self._after(after, local, _SECOND))), default=None)
            return earliest
        except OverflowError:  # within a day of the ends of the calendar
            return None

    def _after(self, after: datetime, local: datetime, reading: int) -> datetime | None:
        """The next instant if every wall is taken at this one reading, so that walls and instants are in one order."""
        wall: datetime | None = local.replace(tzinfo=None, fold=0) + _TICK
        if local.fold != reading and _ambiguous(local):
            # Walls of this fold are all taken in the other pass: behind us, or all still to come.
            shift = self._shift(local)
            wall = shift.high if reading == _FIRST else shift.low
        while wall is not None and (wall := self.fields.at_or_after(wall)) is not None:
            placed, gap = self._place(wall, reading)
            if placed is not None and placed > after:
                return placed
            wall = gap.high if gap else wall + _TICK
        return None

    def _before(self, before: datetime, local: datetime, reading: int) -> datetime | None:
        wall: datetime | None = local.replace(tzinfo=None, fold=0)
        if local.fold != reading and _ambiguous(local):
            shift = self._shift(local)
            wall = shift.high if reading == _FIRST else shift.low
        while wall is not None and (wall := self.fields.before(wall)) is not None:
            placed, gap = self._place(wall, reading)
            if placed is not None and placed < before:
                return placed
            if gap:
                wall = gap.low
        return None

    def _place(self, wall: datetime, reading: int) -> tuple[datetime | None, Shift | None]:
        """The instant of a wall at a reading, and the jump that leaves the wall out if one does."""
        try:
            first, second = readings(wall, self.zone)
        except OverflowError:
            return None, None
        if first <= second:
            return (second if reading == _SECOND else first), None
        gap = shift_between(second, first, self.zone)
        runs = self._runs_in_gaps and not gap.swallows_date_of(wall)
        return (gap.instant if runs else None), gap

    def _shift(self, local: datetime) -> Shift:
        shift = shift_at(local.replace(tzinfo=None, fold=0), self.zone)
        assert shift is not None
        return shift

    def _matching(self, after: datetime, until: datetime, near: list[Shift]) -> int:
        """How many instants of (after, until] show a matching wall."""
        if until <= after:
            return 0
        edges = [after + _TICK, *(shift.instant for shift in near if after < shift.instant <= until), until + _TICK]
        total = 0
        for low, high in pairwise(edges):
            wall = wall_of(low, self.zone).replace(fold=0)
            total += self.fields.count(wall, wall + (high - low))
        return total

    def _adds_run(self, shift: Shift) -> bool:
        """Whether a jump forward makes a run that the wall after it would not have had anyway."""
        return not self.fields.matches(shift.high) and bool(self.walls_left_out(shift))

    def walls_left_out(self, shift: Shift) -> list[datetime]:
        """The matching walls in a gap whose date exists, at most three of them."""
        found: list[datetime] = []
        wall = self.fields.at_or_after(shift.low)
        while wall is not None and wall < shift.high and len(found) < 3 and not shift.swallows_date_of(wall):
            found.append(wall)
            wall = self.fields.at_or_after(wall + _TICK)
        return found


def _ambiguous(local: datetime) -> bool:
    return local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()


def parse(expression: str, timezone: str, *, gap: Gap = "run_at_transition", fold: Fold = "first") -> Cron | Every:
    """Reads an expression: five fields, six with seconds first, a macro, or `@every 30s`. Raises ScheduleError.

    The error names `schedule.expression`, `schedule.timezone`, `policies.gap` or `policies.fold`.
    """
    text = check_text(expression)
    zone(timezone)  # before any cache is asked: a name may be of any type
    one_of(gap, GAPS, "policies.gap")
    one_of(fold, FOLDS, "policies.fold")
    return _parse(text, timezone, gap, fold)


@lru_cache(maxsize=16_384)
def _parse(text: str, timezone: str, gap: Gap, fold: Fold) -> Cron | Every:
    if is_every(text):
        return parse_every(text, timezone)
    return Cron(text, parse_fields(text), zone(timezone), gap, fold)


@lru_cache(maxsize=65_536)
def next_run(
    expression: str, timezone: str, after: datetime, gap: Gap = "run_at_transition", fold: Fold = "first"
) -> datetime | None:
    """The memo that a planner lives on: the many jobs that share an expression ask the same question each minute.

    `after` must be in UTC. Raises ScheduleError for an expression that is none.
    """
    cron = parse(expression, timezone, gap=gap, fold=fold)
    return cron.compute_next(after) if isinstance(cron, Cron) else cron.next(after)
