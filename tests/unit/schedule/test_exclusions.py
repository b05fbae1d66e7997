"""Excluded times are no occurrences, in all directions, and are passed over in stretches."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.schedule.cron import parse
from app.schedule.exclusions import Allowed
from app.schedule.grammar import parse_fields
from app.schedule.zones import zone
from tests.unit.schedule.reference import utc

TICK = timedelta(microseconds=1)


def allowed(expression: str, timezone: str, *entries: str) -> Allowed:
    return Allowed(parse(expression, timezone), entries)


def coming(schedule: Any, after: datetime, n: int) -> list[datetime]:
    found: list[datetime] = []
    for _ in range(n):
        after = schedule.next(after)
        found.append(after)
    return found


@pytest.mark.parametrize(
    ("expression", "timezone", "entries", "after", "expected"),
    [
        # The date is the job's, not UTC's.
        (
            "0 20 * * *",
            "America/New_York",
            ["2026-12-25"],
            "2026-12-25T00:00",
            ["2026-12-25T01:00", "2026-12-27T01:00"],
        ),
        ("0 * * * *", "UTC", ["2026-12-25"], "2026-12-24T23:00", ["2026-12-26T00:00"]),
        # Five fields exclude the whole minute, six the second.
        ("*/20 * * * * *", "UTC", ["0 * * * *"], "2026-01-01T00:59:40", ["2026-01-01T01:01:00"]),
        ("*/20 * * * * *", "UTC", ["0 0 * * * *"], "2026-01-01T00:59:40", ["2026-01-01T01:00:20"]),
        (
            "0 * * * *",
            "UTC",
            ["* 0-8,17-23 * * *", "* * * * 6,0"],
            "2026-01-02T15:00",
            ["2026-01-02T16:00", "2026-01-05T09:00"],
        ),
        ("0 9 * * *", "UTC", ["* * L * *"], "2026-01-30T08:00", ["2026-01-30T09:00", "2026-02-01T09:00"]),
        # An hour that is shown twice is excluded twice, one that is left out not at all.
        ("30 * * * *", "America/New_York", ["* 1 * * *"], "2026-11-01T04:00", ["2026-11-01T04:30", "2026-11-01T07:30"]),
        ("0 * * * *", "America/New_York", ["* 2 * * *"], "2026-03-08T06:00", ["2026-03-08T07:00"]),
        ("@every 30m", "UTC", ["* 1 * * *"], "2026-01-01T00:30", ["2026-01-01T02:00"]),
    ],
)
def test_runs_around_exclusions(
    expression: str, timezone: str, entries: list[str], after: str, expected: list[str]
) -> None:
    schedule = allowed(expression, timezone, *entries)
    assert coming(schedule, utc(after), len(expected)) == [utc(text) for text in expected]


def test_nothing_left_is_noticed_quickly() -> None:
    begun = time.process_time()
    assert allowed("0 9 * * *", "UTC", "0 9 * * *").next(utc("2026-01-01T00:00")) is None
    assert allowed("* * * * * *", "UTC", "* * * * *").next(utc("2026-01-01T00:00")) is None
    assert allowed("* * * * * *", "UTC", "* * * * *").prev(utc("2026-01-01T00:00")) is None
    assert time.process_time() - begun < 3


# Nights of clock changes in New York, London, Havana or Lord Howe Island, and an ordinary one.
NIGHTS = [
    date(2026, 3, 8),
    date(2026, 3, 29),
    date(2026, 10, 25),
    date(2026, 11, 1),
    date(2026, 4, 5),
    date(2026, 7, 1),
]
CALENDARS = ["* 1 * * *", "0 * * * *", "*/7 2-3 * * *", "30 0 12 * * *", "* * 1 11 *", "*/2 * * * 0", "* 0-11 * * *"]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.sampled_from(["*/10 * * * *", "30 1 * * *", "0 */3 * * *", "15,45 0,23 * * *", "@every 25m"]),
    st.sampled_from(["America/New_York", "Europe/London", "America/Havana", "Australia/Lord_Howe", "UTC"]),
    st.sampled_from(NIGHTS),
    st.lists(st.one_of(st.integers(-1, 1), st.sampled_from(CALENDARS)), min_size=1, max_size=4),
    st.integers(-48, 0),
)
def test_the_same_as_filtering_one_by_one(
    expression: str, timezone: str, night: date, chosen: list[int | str], hours: int
) -> None:
    entries = [entry if isinstance(entry, str) else str(night + timedelta(days=entry)) for entry in chosen]
    start = datetime.combine(night, datetime.min.time()) + timedelta(hours=hours)
    low = utc(start.isoformat())
    high = low + timedelta(days=3)
    plain, schedule, where = parse(expression, timezone), allowed(expression, timezone, *entries), zone(timezone)
    expected = [at for at in _all(plain, low, high) if not _excluded(at.astimezone(where), entries)]
    assert _all(schedule, low, high) == expected
    assert schedule.count(low, high) == len(expected)
    found, at = [], high + TICK
    while (before := schedule.prev(at)) is not None and before > low:
        found.append(before)
        at = before
    assert found[::-1] == expected


def _all(schedule: Any, low: datetime, high: datetime) -> list[datetime]:
    found = []
    while (at := schedule.next(low)) is not None and at <= high:
        found.append(at)
        low = at
    return found


def _excluded(local: datetime, entries: list[str]) -> bool:
    for entry in entries:
        if "-" in entry and entry[:4].isdigit():
            if str(local.date()) == entry:
                return True
        elif parse_fields(entry if len(entry.split()) == 6 else f"* {entry}").matches(local.replace(tzinfo=None)):
            return True
    return False
