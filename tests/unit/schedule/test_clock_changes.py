"""Every clock change of 2024–2030 in 60 zones, and any expression, judged by a slow reference and by cronsim.

PGTICK_TEST_LONG=1 tries twenty times as many examples, and every expression at every change.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.schedule.cron import FOLDS, GAPS, Cron
from app.schedule.errors import ScheduleError
from app.schedule.grammar import parse_fields
from app.schedule.walls import Shift, shifts
from app.schedule.zones import zone
from tests.unit.schedule import reference

LONG = bool(os.environ.get("PGTICK_TEST_LONG"))
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)
ZONES = """
    UTC America/New_York America/Chicago America/Denver America/Los_Angeles America/Anchorage America/Adak
    America/Phoenix America/Halifax America/St_Johns America/Havana America/Santiago America/Asuncion
    America/Sao_Paulo America/Bogota America/Caracas America/Argentina/Buenos_Aires America/Mexico_City
    America/Tijuana America/Nuuk America/Scoresbysund America/Miquelon Atlantic/Azores Atlantic/Reykjavik
    Europe/London Europe/Dublin Europe/Lisbon Europe/Berlin Europe/Paris Europe/Madrid Europe/Helsinki
    Europe/Athens Europe/Kiev Europe/Moscow Europe/Istanbul Europe/Chisinau Africa/Cairo Africa/Casablanca
    Africa/El_Aaiun Africa/Johannesburg Africa/Lagos Asia/Jerusalem Asia/Beirut Asia/Gaza Asia/Tehran
    Asia/Dubai Asia/Kolkata Asia/Kathmandu Asia/Almaty Asia/Shanghai Asia/Tokyo Asia/Pyongyang
    Australia/Sydney Australia/Adelaide Australia/Lord_Howe Australia/Perth Pacific/Auckland Pacific/Chatham
    Pacific/Apia Antarctica/Troll
""".split()  # noqa: SIM905
FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
CHANGES = [(name, shift) for name in ZONES for shift in shifts(zone(name), FIRST, LAST)]


def cron(expression: str, timezone: str, gap: str = "run_at_transition", fold: str = "first") -> Cron:
    return Cron(expression, parse_fields(expression), zone(timezone), gap, fold)  # type: ignore[arg-type]


def runs(schedule: Cron, low: datetime, high: datetime) -> list[datetime]:
    """The runs in [low, high), found by `next`."""
    found: list[datetime] = []
    at = schedule.compute_next(low - TICK)
    while at is not None and at < high:
        assert not found or at > found[-1], "not strictly increasing"
        found.append(at)
        at = schedule.compute_next(at)
    return found


def backwards(schedule: Cron, low: datetime, high: datetime) -> list[datetime]:
    found: list[datetime] = []
    at = schedule.prev(high)
    while at is not None and at >= low:
        assert not found or at < found[-1], "not strictly decreasing"
        found.append(at)
        at = schedule.prev(at)
    return found[::-1]


def expressions_at(shift: Shift) -> list[str]:
    """Expressions that meet the hours a change leaves out or repeats."""
    inside, after = shift.low, shift.high
    half = inside + (after - inside) / 2
    return [
        f"{half.minute} {half.hour} * * *",
        f"{inside.minute} {inside.hour} * * *",
        f"{after.minute} {after.hour} * * *",
        f"{inside.minute},{half.minute},{after.minute} {inside.hour},{after.hour} * * *",
        f"0-59/7 {inside.hour} * * *",
        f"{half.minute} * * * *",
        f"*/15 {inside.hour} * * *",
        f"{inside.minute} */2 * * *",
        "*/10 * * * *",
        f"{half.minute} {half.hour} {half.day} * *",
        "0 0 * * *",
        "59 23 * * *",
    ]


def test_there_are_sixty_zones_with_hundreds_of_changes() -> None:
    assert len(set(ZONES)) == 60
    assert len(CHANGES) > 300


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("fold", FOLDS)
def test_every_change_as_the_slow_reference_has_it(gap: str, fold: str) -> None:
    # The same kind of change comes up again each year: one year of each kind unless in a long run.
    seen: set[tuple[str, timedelta, int]] = set()
    for name, shift in CHANGES:
        kind = (name, shift.after - shift.before, shift.instant.month)
        if kind in seen and not LONG:
            continue
        seen.add(kind)
        low, high = shift.instant - 30 * HOUR, shift.instant + 30 * HOUR
        for expression in expressions_at(shift)[:: 1 if LONG else 3]:
            schedule = cron(expression, name, gap, fold)
            assert runs(schedule, low, high) == _reference(expression, name, shift, gap, fold), (expression, name)


@cache
def _shown(name: str, low: datetime, high: datetime) -> reference.Shown:
    return reference.shown(zone(name), low, high)


def _reference(expression: str, name: str, shift: Shift, gap: str, fold: str) -> list[datetime]:
    low, high = shift.instant - 30 * HOUR, shift.instant + 30 * HOUR
    return reference.runs(expression, _shown(name, low, high), low, high, gap, fold)


@pytest.mark.parametrize("name", ZONES)
def test_times_of_day_run_once_on_each_local_date_for_seven_years(name: str) -> None:
    times = {(9, 0)} | {(wall.hour, wall.minute) for shift in shifts(zone(name), FIRST, LAST) for wall in _near(shift)}
    for hour, minute in sorted(times)[:: 1 if LONG else 4]:
        schedule = cron(f"{minute} {hour} * * *", name)
        found = runs(schedule, FIRST, LAST)
        # A run at a jump shows a later wall, after midnight where the clock jumps at 23:00; meant is the one left out.
        left_out = {shift.instant: shift.low for shift in shifts(zone(name), FIRST, LAST) if shift.gap}
        walls = [at.astimezone(zone(name)) for at in found]
        dates = [
            (wall if (wall.hour, wall.minute) == (hour, minute) else left_out[at]).date()
            for at, wall in zip(found, walls, strict=True)
        ]
        assert all(later - earlier == DAY for earlier, later in pairwise(dates)), (name, hour, minute)
        assert schedule.count(FIRST - TICK, LAST - TICK) == len(found)


def _near(shift: Shift) -> list[datetime]:
    return [shift.low, shift.low + (shift.high - shift.low) / 2, shift.high]


def test_all_ways_agree_at_every_change() -> None:
    for name, shift in CHANGES:
        low, high = shift.instant - 26 * HOUR, shift.instant + 26 * HOUR
        for expression in expressions_at(shift)[:: 1 if LONG else 6]:
            schedule = cron(expression, name, "run_at_transition", "first")
            forwards = runs(schedule, low, high)
            assert backwards(schedule, low, high) == forwards, (expression, name, shift)
            assert schedule.count(low - TICK, high - TICK) == len(forwards)


# Any expression.


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    step = st.integers(1, high - low + 1)
    ordered = st.tuples(value, value).map(sorted)
    item = st.one_of(
        value.map(str),
        ordered.filter(lambda pair: pair[0] < pair[1]).map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.tuples(ordered.filter(lambda pair: pair[0] < pair[1]), step).map(lambda x: f"{x[0][0]}-{x[0][1]}/{x[1]}"),
    )
    return st.one_of(
        st.just("*"),
        step.map(lambda n: f"*/{n}"),
        value.map(str),
        st.lists(item, min_size=1, max_size=3).map(",".join),
    )


EXPRESSIONS = st.tuples(
    _field(0, 59),
    _field(0, 23),
    st.one_of(st.just("*"), st.just("*"), st.just("L"), st.just("LW"), _field(1, 31)),
    st.one_of(st.just("*"), st.just("*"), _field(1, 12)),
    st.one_of(st.just("*"), st.just("*"), st.sampled_from(["1#1", "5#5", "0L", "3#2"]), _field(0, 6)),
).map(" ".join)
MOMENTS = st.one_of(
    st.tuples(st.sampled_from(CHANGES), st.integers(-50 * 3600, 3 * 3600)).map(
        lambda x: (x[0][0], x[0][1].instant + timedelta(seconds=x[1]))
    ),
    st.tuples(st.sampled_from(ZONES), st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1))).map(
        lambda x: (x[0], x[1].replace(tzinfo=UTC))
    ),
)
bounded = settings(
    max_examples=6000 if LONG else 200,
    deadline=None,
    derandomize=not LONG,  # the same examples in each short run
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    print_blob=True,
)


def _usable(expression: str, timezone: str, gap: str = "run_at_transition", fold: str = "first") -> Cron | None:
    try:
        return cron(expression, timezone, gap, fold)
    except ScheduleError:
        return None  # a date that no month has


@bounded
@given(EXPRESSIONS, MOMENTS, st.sampled_from(GAPS), st.sampled_from(FOLDS), st.booleans())
def test_any_expression_is_strictly_increasing_and_the_same_backwards(
    expression: str, moment: tuple[str, datetime], gap: str, fold: str, seconds: bool
) -> None:
    name, start = moment
    schedule = _usable(f"*/17 {expression}" if seconds else expression, name, gap, fold)
    if schedule is None:
        return
    at, found = start, []
    for _ in range(40):
        after = schedule.compute_next(at)
        assert after is not None
        assert after > at
        found.append(after)
        at = after
    for earlier, later in pairwise(found):
        assert schedule.prev(later) == earlier
        assert schedule.count(earlier, later) == 1
    assert schedule.count(start, found[-1]) == len(found)
    before = schedule.prev(start)
    assert before is None or before < start


@bounded
@given(EXPRESSIONS, MOMENTS)
def test_any_expression_agrees_with_cronsim(expression: str, moment: tuple[str, datetime]) -> None:
    name, start = moment
    start = start.replace(second=0, microsecond=0)
    schedule = _usable(expression, name)
    where = zone(name)
    # cronsim steps by whole hours of real time, so it loses its place when a clock changes by anything else.
    odd = any((shift.after - shift.before) % HOUR for shift in shifts(where, start - 400 * DAY, start + 400 * DAY))
    if schedule is None or (odd and schedule.real_time):
        return
    at = start
    for simulated in islice(CronSim(expression, start.astimezone(where)), 40):
        expected = simulated.astimezone(UTC)
        if expected.astimezone(where).replace(tzinfo=None) != simulated.replace(tzinfo=None):
            return  # cronsim starts a day at a midnight that does not exist
        if expected <= at:
            if at == start:
                return  # it takes the second pass of a fold for the first
            continue  # it repeats the instant of a jump
        assert schedule.compute_next(at) == expected, (expression, name, at)
        at = expected


@bounded
@given(EXPRESSIONS, MOMENTS)
def test_each_call_is_quick(expression: str, moment: tuple[str, datetime]) -> None:
    name, start = moment
    schedule = _usable(expression, name)
    if schedule is None:
        return
    for call in (schedule.compute_next, schedule.prev):
        assert min(_spent(call, start) for _ in range(3)) < 0.010


@pytest.mark.parametrize(
    "expression", ["0 0 29 2 *", "0 0 29 2 */7", "0 0 * 2 1#5", "0 0 31W 12 */7", "0-59 0-59 2 * * *", "* * 2 * * *"]
)
def test_sparse_and_dense_expressions_are_quick(expression: str) -> None:
    if "31W" in expression:
        with pytest.raises(ScheduleError):
            parse_fields(expression)
        return
    for name, shift in CHANGES[::20]:
        schedule = cron(expression, name)
        for moment in (shift.instant, shift.instant + HOUR / 2, shift.instant - HOUR / 2):
            for call in (schedule.compute_next, schedule.prev):
                assert min(_spent(call, moment) for _ in range(3)) < 0.010


def _spent(call: object, at: datetime) -> float:
    begun = time.process_time()
    call(at)  # type: ignore[operator]
    return time.process_time() - begun
