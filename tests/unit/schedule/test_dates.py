"""One-off dates: what is accepted, what it means in UTC, and what is refused with the rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.schedule.dates import parse_date
from app.schedule.errors import ScheduleError
from tests.unit.schedule.reference import utc

NOW = utc("2026-03-01T12:00")


@pytest.mark.parametrize(
    ("value", "timezone", "expected"),
    [
        ("2026-03-08T02:30:00Z", None, "2026-03-08T02:30"),
        ("2026-03-08T02:30:00+05:30", None, "2026-03-07T21:00"),
        ("2026-03-08T02:30:00-0500", "Asia/Tokyo", "2026-03-08T07:30"),
        ("2026-03-08 02:30z", None, "2026-03-08T02:30"),
        ("2026-03-08T02:30:00.000001Z", None, "2026-03-08T02:30:00.000001"),
        ("2026-03-08T02:30:00.5Z", None, "2026-03-08T02:30:00.500000"),
        ("2026-03-08T02:30:00.123456000Z", None, "2026-03-08T02:30:00.123456"),
        ("2026-07-01T09:00", "Europe/Berlin", "2026-07-01T07:00"),
        ("2026-03-08T02:30:00+15:59", None, "2026-03-07T10:31"),
        ("1999-12-31T23:59:59Z", None, "2000-01-01T00:00"),
        ("1970-01-01T00:00:00Z", None, "2000-01-01T00:00"),
        ("0001-01-01T00:00:00+14:00", None, "2000-01-01T00:00"),
        ("0001-01-01T00:00", "Asia/Tokyo", "2000-01-01T00:00"),
        ("2036-03-01T12:00:00Z", None, "2036-03-01T12:00"),
    ],
)
def test_iso_8601_is_an_exact_instant(value: str, timezone: str | None, expected: str) -> None:
    assert parse_date(value, timezone, NOW) == (utc(expected), [])


@pytest.mark.parametrize(
    ("value", "timezone", "expected", "warning"),
    [
        ("2026-03-08T02:30", "America/New_York", "2026-03-08T07:00", "02:30 does not exist on 2026-03-08"),
        ("2026-11-01T01:30", "America/New_York", "2026-11-01T05:30", "01:30 happens twice on 2026-11-01"),
        ("2026-10-04T02:15", "Australia/Lord_Howe", "2026-10-03T15:30", "taken at 02:30"),
        ("2026-03-08T02:30:00.1234567Z", None, "2026-03-08T02:30:00.123456", "beyond microseconds"),
    ],
)
def test_what_was_decided_for_the_user_is_said(value: str, timezone: str | None, expected: str, warning: str) -> None:
    instant, warnings = parse_date(value, timezone, NOW)
    assert instant == utc(expected)
    assert len(warnings) == 1
    assert warning in warnings[0]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("2026-03-08T02:30", "has no offset"),
        (1767225600, "a number (epochs are not accepted)"),
        (1767225600.5, "a number"),
        (True, "a boolean"),
        (None, "null"),
        ({}, "not dict"),
        (datetime(2026, 1, 1, tzinfo=UTC), "not datetime"),
        ("1767225600", "not a date and time"),
        ("1767225600000", "not a date and time"),
        ("20260308", "not a date and time"),
        ("2026-03-08", "not a date and time"),
        ("tomorrow", "not a date and time"),
        ("", "not a date and time"),
        ("2026-03-08T02:30:00Z\n", "not a date and time"),
        ("2026-03-08T02:30:00Z\0", "not a date and time"),
        ("２０２６-03-08T02:30:00Z", "not a date and time"),
        ("\ud800", "not a date and time"),
        ("2" * 100_000, "not a date and time"),
        ("2026-02-30T00:00:00Z", "not on the calendar"),
        ("2026-13-01T00:00:00Z", "not on the calendar"),
        ("2026-01-01T24:00:00Z", "not on the calendar or the clock"),
        ("2026-01-01T23:59:60Z", "not on the calendar or the clock"),
        ("2026-01-01T12:00+25:00", "not a date and time"),
        ("2026-01-01T12:00+16:00", "not a date and time"),
        ("2026-01-01T12:00+05:60", "not a date and time"),
        ("2026-01-01T12:00+05:99", "not a date and time"),
        ("2026-01-01T12:30.5Z", "not a date and time"),
        ("20260308T023000Z", "not a date and time"),
        ("2026-W10-7T02:30Z", "not a date and time"),
        ("2026-03-08T02:30:00,5Z", "not a date and time"),
        (" 2026-03-08T02:30:00Z", "not a date and time"),
        ("2026-03-08T02:30:00 Z", "not a date and time"),
        ("2036-03-01T12:00:00.000001Z", "more than 10 years ahead"),
        ("9999-12-31T23:59:59Z", "more than 10 years ahead"),
        ("9999-12-31T23:59:59-14:00", "more than 10 years ahead"),
    ],
)
def test_anything_else_is_refused_with_the_rule(value: Any, rule: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_date(value, None, NOW)
    assert caught.value.field == "schedule.date"
    assert rule in caught.value.rule
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("value", "timezone"),
    [("9999-12-31T23:59:59", "America/New_York"), ("9999-12-31T00:00", "UTC")],
)
def test_local_dates_at_the_ends_of_the_calendar(value: str, timezone: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_date(value, timezone, NOW)
    assert caught.value.field == "schedule.date"


def test_the_zone_is_checked_even_when_the_date_has_an_offset() -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_date("2026-03-08T02:30:00Z", "IST", NOW)
    assert caught.value.field == "schedule.timezone"


def test_ten_years_ahead_of_a_leap_day() -> None:
    leap = utc("2028-02-29T00:00")
    assert parse_date("2038-02-28T00:00Z", None, leap)[0] - leap < timedelta(days=3653)
    with pytest.raises(ScheduleError):
        parse_date("2038-03-02T00:00Z", None, leap)
