"""Instants that are facts: an expression, a zone, a start, and the runs that follow."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.schedule.cron import Cron, parse
from app.schedule.errors import ScheduleError
from app.schedule.grammar import parse_fields
from app.schedule.selftest import self_test
from tests.unit.schedule.reference import utc, zone_from_rule

CASES = json.loads(Path(__file__).with_name("cron_cases.json").read_text())


def _name(case: dict[str, Any]) -> str:
    return f"{case['expression']} {case['timezone']} {case['start'][:10]}"


def _schedule(case: dict[str, Any]) -> Any:
    # A government may cancel a clock change that a row is about; then the row names the rule that was in force.
    if rule := case.get("zone_rule"):
        fields = parse_fields(case["expression"])
        return Cron(case["expression"], fields, zone_from_rule(rule), "run_at_transition", "first")
    return parse(case["expression"], case["timezone"])


@pytest.mark.parametrize("case", [case for case in CASES if case["runs"]], ids=_name)
def test_runs_are_the_right_instants(case: dict[str, Any]) -> None:
    schedule, start = _schedule(case), datetime.fromisoformat(case["start"])
    find = schedule.compute_next if "zone_rule" in case else schedule.next
    expected = [datetime.fromisoformat(run) for run in case["runs"]]
    at, found = start, []
    for _ in expected:
        at = find(at)
        found.append(at)
    assert found == expected
    for earlier, later in pairwise(expected):
        assert schedule.prev(later) == earlier
    assert schedule.count(start, expected[-1]) == len(expected)


@pytest.mark.parametrize("case", [case for case in CASES if not case["runs"]], ids=_name)
def test_impossible_dates_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse(case["expression"], case["timezone"])
    assert caught.value.field == "schedule.expression"


def test_self_test_passes() -> None:
    assert self_test() == []


def test_self_test_notices_a_wrong_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.schedule.selftest.parse", lambda expression, timezone: parse(expression, "UTC"))
    assert any("America/New_York" in failure for failure in self_test())


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 0 31 * *", "2026-01-31T00:00", ["2026-03-31T00:00", "2026-05-31T00:00"]),
        ("*/40 * * * *", "2026-01-01T00:00", ["2026-01-01T00:40", "2026-01-01T01:00"]),
        ("0 0 * * 0,7", "2026-01-01T00:00", ["2026-01-04T00:00", "2026-01-11T00:00"]),
        ("0 0 * * SUN", "2026-01-01T00:00", ["2026-01-04T00:00"]),
        ("0 0 * * 7-7", "2026-01-01T00:00", ["2026-01-04T00:00", "2026-01-11T00:00"]),
        ("0 0 * * 7-1", "2026-01-01T00:00", ["2026-01-04T00:00", "2026-01-05T00:00", "2026-01-11T00:00"]),
        ("0 0 * * 6-2/2", "2026-01-01T00:00", ["2026-01-03T00:00", "2026-01-05T00:00", "2026-01-10T00:00"]),
        ("0 0 1 NOV-FEB/2 *", "2026-01-02T00:00", ["2026-11-01T00:00", "2027-01-01T00:00"]),
        ("0 0 1 jan-jan *", "2026-01-02T00:00", ["2027-01-01T00:00"]),
        ("5-5/15 * * * *", "2026-01-01T00:00", ["2026-01-01T00:05", "2026-01-01T01:05"]),
        ("50/5 * * * *", "2026-01-01T00:00", ["2026-01-01T00:50", "2026-01-01T00:55", "2026-01-01T01:50"]),
        ("0 22-2/3 * * *", "2026-01-01T03:00", ["2026-01-01T22:00", "2026-01-02T01:00"]),
        ("30 0 0 * * *", "2026-01-01T00:00", ["2026-01-01T00:00:30", "2026-01-02T00:00:30"]),
        ("0 0 LW * *", "2026-01-01T00:00", ["2026-01-30T00:00", "2026-02-27T00:00"]),
        ("0 0 15W * *", "2026-02-01T00:00", ["2026-02-16T00:00", "2026-03-16T00:00"]),
        ("0 0 1W * *", "2026-07-31T00:00", ["2026-08-03T00:00", "2026-09-01T00:00"]),
        ("0 0 31W * *", "2026-04-01T00:00", ["2026-04-30T00:00", "2026-05-29T00:00"]),
        ("0 0 1,15W * *", "2026-02-01T00:00", ["2026-02-16T00:00", "2026-03-01T00:00"]),
        ("0 0 * * 5L", "2026-01-01T00:00", ["2026-01-30T00:00", "2026-02-27T00:00"]),
        ("0 0 * * L5", "2026-01-01T00:00", ["2026-01-30T00:00"]),
        ("0 0 * * 1,FRI#2", "2026-01-05T00:00", ["2026-01-09T00:00", "2026-01-12T00:00"]),
        ("0 0 L * 1", "2026-01-27T00:00", ["2026-01-31T00:00", "2026-02-02T00:00"]),
        ("0 0 ? * 1", "2026-01-01T00:00", ["2026-01-05T00:00", "2026-01-12T00:00"]),
        ("0 0 29 2 */7", "2026-01-01T00:00", ["2032-02-29T00:00", "2060-02-29T00:00"]),
        ("@Yearly", "2026-01-01T00:00", ["2027-01-01T00:00"]),
        ("@weekly", "2026-01-01T00:00", ["2026-01-04T00:00"]),
        ("  @daily\t", "2026-01-01T00:00", ["2026-01-02T00:00"]),
        ("0 0 1 1 *", "2026-01-01T00:00:00.000001", ["2027-01-01T00:00"]),
        ("@every 1h30m", "2026-01-01T00:00", ["2026-01-01T01:30", "2026-01-01T03:00"]),
        ("@EVERY 2w", "1970-01-01T00:00", ["1970-01-15T00:00"]),
    ],
)
def test_how_fields_are_read(expression: str, start: str, expected: list[str]) -> None:
    schedule, at, found = parse(expression, "UTC"), utc(start), []
    for _ in expected:
        after = schedule.next(at)
        assert after is not None
        assert schedule.prev(after + timedelta(microseconds=1)) == after
        found.append(after)
        at = after
    assert found == [utc(text) for text in expected]


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("* * * *", "but found 4"),
        ("* * * * * * *", "years are not supported"),
        ("0 0 31 4 *", "no month has such a day"),
        ("0 0 31 2,4,6,9,11 *", "no month has such a day"),
        ("*/0 * * * *", "step must be from 1 to 60"),
        ("*/61 * * * *", "step must be from 1 to 60"),
        ("* */25 * * *", "step must be from 1 to 24"),
        ("*/99999999999999999999 * * * *", "not understood"),
        ("9" * 200 + " * * * *", "not understood"),
        ("60 * * * *", "outside 0–59"),
        ("* 24 * * *", "outside 0–23"),
        ("* * 0 * *", "outside 1–31"),
        ("* * * 13 *", "outside 1–12"),
        ("* * * * 8", "outside 0–7"),
        ("* * * * 1#0", "a first to a fifth"),
        ("* * * * 1#6", "a first to a fifth"),
        ("* * * * L", "not understood"),
        ("L * * * *", "not understood"),
        ("? * * * *", "not understood"),
        ("* * ?/2 * *", "not understood"),
        ("1,,2 * * * *", "not understood"),
        ("1- * * * *", "not understood"),
        ("-1 * * * *", "not understood"),
        ("1.5 * * * *", "not understood"),
        ("* * * FOO *", "not understood"),
        ("* * * MON *", "not understood"),
        ("H * * * *", "use jitter"),
        ("R * * * *", "use jitter"),
        ("H(0-29)/10 * * * *", "use jitter"),
        ("@reboot", "@reboot names no time"),
        ("@fortnightly", "is not a macro"),
        ("@every", "not an interval"),
        ("@every 5", "not an interval"),
        ("@every5m", "not an interval"),
        ("@every -5m", "not an interval"),
        ("@every 0s", "at least 1 s"),
        ("@every 500ms", "not an interval"),
        ("@every 999999999w", "at most 10 years"),
        ("* * * * *\0", "printable ASCII"),
        ("* * * *\n*", "printable ASCII"),
        ("* * * * ＊", "printable ASCII"),
        ("* * * * \ud800", "printable ASCII"),
        ("* " * 130, "at most 256"),
        (5, "must be a string"),
        (None, "must be a string"),
        (["* * * * *"], "must be a string"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_rule(expression: Any, rule: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse(expression, "UTC")
    assert caught.value.field == "schedule.expression"
    assert rule in caught.value.rule


@pytest.mark.parametrize(
    "name",
    ["UTC+5", "IST", "+05:30", "", "America", "../../etc/passwd", "/etc/localtime", "localtime", "Factory", "UTC\0",
     "europe/berlin", "Europe/Berlin ", "\ud800", "x" * 10_000, None, 5, True, ["UTC"]],
)  # fmt: skip
def test_what_is_no_zone_is_refused(name: Any) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse("* * * * *", name)
    assert caught.value.field == "schedule.timezone"
    str(caught.value).encode()


@pytest.mark.parametrize("name", ["UTC", "Europe/Kiev", "US/Eastern", "Etc/GMT+5", "EST", "America/Argentina/Ushuaia"])
def test_zones_of_the_database_are_accepted(name: str) -> None:
    assert parse("* * * * *", name).timezone == name


@pytest.mark.parametrize(("gap", "fold", "field"), [("x", "first", "policies.gap"), ("skip", [], "policies.fold")])
def test_unknown_policies_are_refused(gap: Any, fold: Any, field: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse("0 0 * * *", "UTC", gap=gap, fold=fold)
    assert caught.value.field == field


def test_both_passes_of_a_fold_are_different_questions_to_the_memo() -> None:
    """Datetimes of one zone compare equal in both passes, so the memo must never see them."""
    schedule = parse("*/30 * * * *", "America/New_York")
    zone = schedule.zone  # type: ignore[union-attr]
    first = datetime(2026, 11, 1, 1, 0, tzinfo=zone)
    second = first.replace(fold=1)
    assert schedule.next(first) == utc("2026-11-01T05:30")
    assert schedule.next(second) == utc("2026-11-01T06:30")


def test_a_datetime_without_zone_is_a_mistake() -> None:
    for expression in ("* * * * *", "@every 5m"):
        with pytest.raises(ValueError, match="no zone"):
            parse(expression, "UTC").next(datetime(2026, 1, 1))


@pytest.mark.parametrize("timezone", ["UTC", "America/New_York", "Asia/Tokyo", "Pacific/Kiritimati"])
@pytest.mark.parametrize("expression", ["* * * * * *", "0 0 * * *", "0 0 29 2 *", "@every 1h"])
def test_the_ends_of_the_calendar_are_no_errors(expression: str, timezone: str) -> None:
    schedule = parse(expression, timezone)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert schedule.next(last) is None
    assert schedule.prev(first) is None
    for at in (schedule.next(first), schedule.prev(last)):
        assert at is None or first <= at <= last
