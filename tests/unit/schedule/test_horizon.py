"""Planning one schedule, with the clock as a parameter: downtime, drift, bounds, spread, previews."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from app.schedule.errors import ScheduleError
from app.schedule.horizon import Plan, between, first, jitter, plan, upcoming
from app.schedule.policies import Policies
from tests.unit.schedule.reference import utc

JOB = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
NOW = utc("2026-03-02T12:00:30")
HORIZON = timedelta(seconds=60)


def planned(expression: str, next_run_at: str, policies: dict[str, object] | None = None, **other: Any) -> Plan:
    now = other.pop("now", NOW)
    given = None if policies is None else Policies.from_dict(policies, recurring=True)
    return plan(
        expression,
        other.pop("timezone", "UTC"),
        given,
        job_id=JOB,
        next_run_at=utc(next_run_at),
        now=now,
        until=other.pop("until", now + HORIZON),
        **other,
    )


def times(result: Plan) -> list[str]:
    return [occurrence.scheduled_at.strftime("%d %H:%M:%S") for occurrence in result.occurrences]


def test_one_occurrence_and_the_next_time() -> None:
    result = planned("* * * * *", "2026-03-02T12:01", runs=7)
    assert times(result) == ["02 12:01:00"]
    assert result.occurrences[0].due_at == result.occurrences[0].scheduled_at
    assert (result.next_run_at, result.runs, result.skipped) == (utc("2026-03-02T12:02"), 8, [])


def test_nothing_before_its_time() -> None:
    result = planned("0 * * * *", "2026-03-02T13:00")
    assert result == Plan([], [], utc("2026-03-02T13:00"), 0)


def test_all_occurrences_up_to_the_horizon_included() -> None:
    result = planned("*/20 * * * * *", "2026-03-02T12:00:40", until=utc("2026-03-02T12:01:20"))
    assert times(result) == ["02 12:00:40", "02 12:01:00", "02 12:01:20"]
    assert result.next_run_at == utc("2026-03-02T12:01:40")


@pytest.mark.parametrize(("since_due_s", "runs"), [(-1, ["02 09:00:00"]), (1, [])])
def test_a_deadline_counts_from_when_an_occurrence_is_due_jitter_included(since_due_s: int, runs: list[str]) -> None:
    spread = timedelta(hours=2)
    due = utc("2026-03-02T09:00") + jitter(JOB, utc("2026-03-02T09:00"), spread)
    policies = {"jitter_s": spread.total_seconds(), "expires_after_s": 9_000}
    now = due + timedelta(seconds=9_000 + since_due_s)
    assert times(planned("0 9 * * *", "2026-02-28T09:00", policies, now=now)) == runs


@pytest.mark.parametrize("policies", [None, {"max_runs": 10_000}])
def test_an_hour_of_seconds_stays_on_the_grid_without_drift(policies: dict[str, object] | None) -> None:
    """Planned by a clock that is late by another amount each time."""
    at, found = utc("2026-03-02T12:00"), []
    for step in range(400):
        now = utc("2026-03-02T12:00") + timedelta(seconds=9 * step, milliseconds=step * 37 % 900)
        result = planned("* * * * * *", at.replace(tzinfo=None).isoformat(), policies, now=now, until=now + HORIZON / 6)
        assert result.next_run_at is not None
        assert not result.skipped
        at = result.next_run_at
        found += [occurrence.scheduled_at for occurrence in result.occurrences]
    assert len(found) >= 3600
    assert found[0] == utc("2026-03-02T12:00")
    assert all(later - earlier == timedelta(seconds=1) for earlier, later in pairwise(found))


@pytest.mark.parametrize(
    ("down", "expression", "policies", "runs", "skipped"),
    [
        # Down for ten minutes, three hours, three days; the newest missed one runs once, then on the grid.
        (timedelta(minutes=10), "* * * * *", None, ["02 12:00:00", "02 12:01:00"], [("02 11:50:00", 10)]),
        (timedelta(hours=3), "* * * * *", {}, ["02 12:00:00", "02 12:01:00"], [("02 09:00:00", 180)]),
        (timedelta(days=3), "* * * * *", {"missed": "latest"}, ["02 12:00:00", "02 12:01:00"], [("27 12:00:00", 4320)]),
        (timedelta(days=3), "0 9 * * *", None, ["02 09:00:00"], [("28 09:00:00", 2)]),
        (timedelta(hours=10), "0 9 * * *", None, ["02 09:00:00"], []),
        (timedelta(minutes=10), "0 9 * * *", None, [], []),
        # `skip` runs none that was missed, but still one that is on time by the grace.
        (timedelta(days=3), "0 9 * * *", {"missed": "skip"}, [], [("28 09:00:00", 3)]),
        (timedelta(minutes=10), "* * * * *", {"missed": "skip"}, ["02 12:00:00", "02 12:01:00"], [("02 11:50:00", 10)]),
        # `all` runs those of the window.
        (
            timedelta(minutes=3),
            "* * * * *",
            {"missed": "all"},
            [f"02 {m}:00" for m in ("11:57", "11:58", "11:59", "12:00", "12:01")],
            [],
        ),
        (
            timedelta(minutes=10),
            "* * * * *",
            {"missed": "all", "missed_window_s": 150},
            ["02 11:58:00", "02 11:59:00", "02 12:00:00", "02 12:01:00"],
            [("02 11:50:00", 8)],
        ),
        (timedelta(days=3), "0 9 * * *", {"missed": "all", "missed_window_s": 600}, [], [("28 09:00:00", 3)]),
        (
            timedelta(days=3),
            "0 9 * * *",
            {"missed": "all", "missed_window_s": 2 * 86_400},
            ["01 09:00:00", "02 09:00:00"],
            [("28 09:00:00", 1)],
        ),
        # A start deadline also holds after downtime.
        (timedelta(days=3), "0 9 * * *", {"expires_after_s": 600}, [], [("28 09:00:00", 2), ("02 09:00:00", 1)]),
        (
            timedelta(days=3),
            "0 9 * * *",
            {"missed": "all", "missed_window_s": 5 * 86_400, "expires_after_s": 4 * 3600},
            ["02 09:00:00"],
            [("28 09:00:00", 2)],
        ),
        # Exclusions are no occurrences, and are not counted.
        (timedelta(days=3), "0 9 * * *", {"exclude": ["2026-03-01"]}, ["02 09:00:00"], [("28 09:00:00", 1)]),
        (
            timedelta(minutes=10),
            "* * * * *",
            {"exclude": ["55-59 * * * *"]},
            ["02 12:00:00", "02 12:01:00"],
            [("02 11:50:00", 5)],
        ),
        # Bounds: what is skipped does not use up runs; nothing after the end.
        (timedelta(minutes=10), "* * * * *", {"max_runs": 1}, ["02 12:00:00"], [("02 11:50:00", 10)]),
        (timedelta(minutes=10), "* * * * *", {"end_at": "2026-03-02T11:55:00Z"}, ["02 11:55:00"], [("02 11:50:00", 5)]),
        (
            timedelta(minutes=10),
            "* * * * *",
            {"missed": "all", "end_at": "2026-03-02T11:51:00Z", "missed_window_s": 60},
            [],
            [("02 11:50:00", 2)],
        ),
        (
            timedelta(minutes=10),
            "* * * * *",
            {"start_at": "2026-03-02T11:58:00Z"},
            ["02 12:00:00", "02 12:01:00"],
            [("02 11:58:00", 2)],
        ),
        # An interval keeps its own grid.
        (timedelta(hours=1), "@every 7m", None, ["02 11:55:00"], [("02 11:06:00", 7)]),
    ],
)
def test_downtime(
    down: timedelta,
    expression: str,
    policies: dict[str, object] | None,
    runs: list[str],
    skipped: list[tuple[str, int]],
) -> None:
    was_next = first(expression, "UTC", None, NOW - down - timedelta(seconds=31))
    assert was_next is not None
    result = planned(expression, was_next.replace(tzinfo=None).isoformat(), policies)
    assert times(result) == runs
    assert [(skip.scheduled_at.strftime("%d %H:%M:%S"), skip.count) for skip in result.skipped] == skipped
    assert all(skip.reason for skip in result.skipped)
    given = Policies.from_dict(policies, recurring=True)
    if result.next_run_at is None:
        assert given.max_runs or given.end_at
    else:
        assert result.next_run_at > NOW + HORIZON, "it goes on on the grid"
        last = result.occurrences[-1].scheduled_at if result.occurrences else NOW
        assert result.next_run_at == first(expression, "UTC", given, last)


def test_a_planner_that_was_briefly_busy_loses_nothing() -> None:
    result = planned("*/10 * * * * *", "2026-03-02T11:59:40", until=NOW)
    assert times(result) == ["02 11:59:40", "02 11:59:50", "02 12:00:00", "02 12:00:10", "02 12:00:20", "02 12:00:30"]
    assert not result.skipped
    late = planned("*/10 * * * * *", "2026-03-02T11:59:40", until=NOW, grace=timedelta(seconds=5))
    assert times(late) == ["02 12:00:30"]
    assert [skip.count for skip in late.skipped] == [5]


@pytest.mark.parametrize("policies", [None, {"missed": "all"}, {"missed": "skip"}, {"exclude": ["* 3 * * *"]}])
def test_three_days_of_seconds_are_dealt_with_in_no_time(policies: dict[str, object] | None) -> None:
    begun = time.process_time()
    result = planned("* * * * * *", "2026-02-27T12:00:30", policies)
    assert time.process_time() - begun < 0.5
    assert sum(skip.count for skip in result.skipped) > 100_000
    assert len(result.occurrences) <= 1000


@pytest.mark.parametrize("missed", ["latest", "skip", "all"])
def test_a_day_of_excluded_seconds_is_dealt_with_in_parts(missed: str) -> None:
    policies: dict[str, object] = {"missed": missed, "missed_window_s": 60, "exclude": ["*/2 * * * * *"]}
    at: datetime | None = utc("2026-03-02T09:00:01")
    skipped = 0
    found: list[str] = []
    for _ in range(20):
        begun = time.process_time()
        assert at is not None
        result = planned("* * * * * *", at.replace(tzinfo=None).isoformat(), policies)
        assert time.process_time() - begun < 1.5
        skipped += sum(skip.count for skip in result.skipped)
        found += times(result)
        at = result.next_run_at
        if at is None or at > NOW + HORIZON:
            break
    assert at is not None
    assert at > NOW + HORIZON
    assert skipped + len(found) == (at - utc("2026-03-02T09:00:01")) / timedelta(seconds=2)
    assert found[0] >= "02 11:59:29"
    assert found == sorted(set(found))


def test_a_range_with_more_exclusions_than_can_be_counted_is_not_counted() -> None:
    policies = Policies.from_dict({"exclude": ["*/2 * * * * *"]}, recurring=True)
    assert between("* * * * * *", "UTC", policies, utc("2026-03-01T00:00"), utc("2026-03-02T00:00")) == ([], None)
    found, total = between("* * * * * *", "UTC", policies, utc("2026-03-01T00:00"), utc("2026-03-01T00:20"))
    assert len(found) == total == 600


def test_a_preview_takes_no_longer_than_people_wait() -> None:
    exclude = ["*/2 * * * * *", "1-57/2 * * * * *", "59 1-59 * * * *"]
    begun = time.monotonic()
    runs = upcoming("* * * * * *", "UTC", Policies.from_dict({"exclude": exclude}, recurring=True), NOW, 100)
    assert len(runs) >= 1
    assert time.monotonic() - begun < 10


def test_what_clocks_do_before_the_first_run_is_no_note() -> None:
    policies = Policies.from_dict({"start_at": "2199-06-01T00:00:00Z"}, recurring=True)
    begun = time.process_time()
    [run] = upcoming("30 2 * * *", "America/New_York", policies, NOW, 1)
    assert run.note is None
    assert time.process_time() - begun < 0.5


def test_catching_up_goes_on_where_the_limit_stopped_it() -> None:
    policies: dict[str, object] = {"missed": "all", "missed_window_s": 7200}
    at, found = "2026-03-02T11:00", []
    for _ in range(100):
        result = planned("* * * * *", at, policies, limit=7)
        assert len(result.occurrences) <= 7
        assert not result.skipped
        found += times(result)
        assert result.next_run_at is not None
        at = result.next_run_at.replace(tzinfo=None).isoformat()
        if result.next_run_at > NOW + HORIZON:
            break
    assert len(found) == len(set(found)) == 62


def test_nothing_is_planned_with_no_room() -> None:
    catch_up: dict[str, object] = {"missed": "all"}
    for policies in (None, catch_up):
        result = planned("* * * * *", "2026-03-02T11:00", policies, limit=0)
        assert result == Plan([], [], utc("2026-03-02T11:00"), 0)


def test_resuming_after_a_pause_goes_on_at_the_next_slot() -> None:
    """A pause over 12:00 leaves no run for it: the next time is asked from the moment of resuming."""
    assert first("0 * * * *", "UTC", None, utc("2026-03-02T12:00:30")) == utc("2026-03-02T13:00")
    assert first("@every 1h", "UTC", None, utc("2026-03-02T12:00:30"), anchor=utc("2026-03-01T00:10")) == utc(
        "2026-03-02T12:10"
    )


def test_an_interval_counts_from_its_start() -> None:
    policies = Policies.from_dict({"start_at": "2026-03-02T13:00:00Z"}, recurring=True)
    posted = utc("2026-03-01T00:10")
    for after, expected in (("2026-03-02T12:00:30", "2026-03-02T13:00"), ("2026-03-02T13:00", "2026-03-02T15:00")):
        assert first("@every 2h", "UTC", policies, utc(after), anchor=posted) == utc(expected)
    later = planned("@every 2h", "2026-03-02T15:00", {"start_at": "2026-03-02T13:00:00Z"}, now=utc("2026-03-02T15:00"))
    assert later.next_run_at == utc("2026-03-02T17:00")


def test_the_newest_missed_is_none_that_was_skipped_by_hand() -> None:
    result = planned("0 * * * *", "2026-03-02T09:00", skips=[utc("2026-03-02T12:00"), utc("2026-03-02T11:00")])
    assert times(result) == ["02 10:00:00", "02 11:00:00", "02 12:00:00"]
    assert [(skip.scheduled_at, skip.count) for skip in result.skipped] == [(utc("2026-03-02T09:00"), 1)]


@pytest.mark.parametrize(
    ("policies", "after", "runs", "expected"),
    [
        ({"start_at": "2026-03-02T13:00:00Z"}, "2026-03-02T09:30", 0, "2026-03-02T13:00"),
        ({"end_at": "2026-03-02T13:00:00Z"}, "2026-03-02T12:30", 0, "2026-03-02T13:00"),
        ({"end_at": "2026-03-02T12:59:59Z"}, "2026-03-02T12:30", 0, None),
        ({"max_runs": 3}, "2026-03-02T12:30", 2, "2026-03-02T13:00"),
        ({"max_runs": 3}, "2026-03-02T12:30", 3, None),
        ({"exclude": ["* 13 * * *"]}, "2026-03-02T12:30", 0, "2026-03-02T14:00"),
    ],
)
def test_first_occurrence_within_bounds(
    policies: dict[str, object], after: str, runs: int, expected: str | None
) -> None:
    at = first("0 * * * *", "UTC", Policies.from_dict(policies, recurring=True), utc(after), runs=runs)
    assert at == (expected and utc(expected))


def test_a_schedule_ends_with_its_last_run() -> None:
    result = planned("* * * * *", "2026-03-02T12:01", {"max_runs": 5}, runs=4)
    assert (times(result), result.next_run_at, result.runs) == (["02 12:01:00"], None, 5)
    result = planned("* * * * *", "2026-03-02T12:01", {"end_at": "2026-03-02T12:01:00Z"})
    assert (times(result), result.next_run_at) == (["02 12:01:00"], None)
    result = planned("* * * * *", "2026-03-02T12:01", {"max_runs": 5}, runs=5)
    assert result == Plan([], [], None, 5)


def test_jitter_spreads_and_is_the_same_each_time() -> None:
    policies: dict[str, object] = {"jitter_s": 30}
    late = []
    for minute in range(200):
        now = NOW + timedelta(minutes=minute)
        at = (now.replace(second=0) + timedelta(minutes=1)).replace(tzinfo=None).isoformat()
        once, again = planned("* * * * *", at, policies, now=now), planned("* * * * *", at, policies, now=now)
        assert once == again
        late.append((once.occurrences[0].due_at - once.occurrences[0].scheduled_at).total_seconds())
    assert 0 <= min(late) < 3
    assert 27 < max(late) < 30
    assert 12 < sum(late) / len(late) < 18


def test_occurrences_that_jitter_may_still_hold_back_are_not_missed() -> None:
    result = planned("* * * * *", "2026-03-02T11:56", {"jitter_s": 600})
    assert times(result) == [f"02 {minute}:00" for minute in ("11:56", "11:57", "11:58", "11:59", "12:00", "12:01")]
    assert not result.skipped


def test_daylight_saving_policies_reach_the_plan() -> None:
    night = utc("2026-11-01T05:30")
    both = planned("30 1 * * *", "2026-11-01T05:30", {"fold": "both"}, timezone="America/New_York", now=night)
    assert both.next_run_at == utc("2026-11-01T06:30")
    once = planned("30 1 * * *", "2026-11-01T05:30", None, timezone="America/New_York", now=night)
    assert once.next_run_at == utc("2026-11-02T06:30")


def test_an_unreadable_row_is_an_error_of_its_own() -> None:
    for expression, timezone in (("0 0 30 2 *", "UTC"), ("* * * * *", "Mars/Base"), ("", "UTC"), ("@every", "UTC")):
        with pytest.raises(ScheduleError):
            planned(expression, "2026-03-02T12:01", timezone=timezone)


def test_the_common_case_costs_microseconds() -> None:
    until = NOW + HORIZON
    at = utc("2026-03-02T12:01")

    def spent() -> float:
        begun = time.process_time()
        for _ in range(2000):
            plan("* * * * *", "Europe/Berlin", None, job_id=JOB, next_run_at=at, now=NOW, until=until)
        return (time.process_time() - begun) / 2000

    assert min(spent() for _ in range(5)) < 15e-6  # 1.2 µs on an idle machine


def test_a_past_range_is_listed_and_counted() -> None:
    found, total = between("0 * * * *", "UTC", None, utc("2026-03-01T00:00"), utc("2026-03-02T00:00"), limit=3)
    assert (found, total) == ([utc("2026-03-01T00:00"), utc("2026-03-01T01:00"), utc("2026-03-01T02:00")], 25)
    policies = Policies.from_dict({"exclude": ["2026-03-01"], "max_runs": 1}, recurring=True)
    assert between("0 * * * *", "UTC", policies, utc("2026-03-01T00:00"), utc("2026-03-02T00:00")) == (
        [utc("2026-03-02T00:00")],
        1,
    )
    assert between("0 * * * *", "UTC", None, utc("2026-03-02T00:00"), utc("2026-03-01T00:00")) == ([], 0)


@pytest.mark.parametrize(
    ("expression", "policies", "after", "expected"),
    [
        ("30 2 * * *", {}, "2026-03-07T12:00", [
            ("2026-03-08T03:00:00-04:00", "clock jumps forward: 02:30 does not exist on 2026-03-08, runs at 03:00"),
            ("2026-03-09T02:30:00-04:00", None),
        ]),
        ("0,30 2 * * *", {}, "2026-03-07T12:00", [
            ("2026-03-08T03:00:00-04:00",
             "clock jumps forward: 02:00 and 02:30 do not exist on 2026-03-08, runs at 03:00"),
        ]),
        ("30 2 * * *", {"gap": "skip"}, "2026-03-07T12:00", [
            ("2026-03-09T02:30:00-04:00", "clock jumps forward: 02:30 does not exist on 2026-03-08, left out"),
        ]),
        ("0 * * * *", {}, "2026-03-08T06:30", [
            ("2026-03-08T03:00:00-04:00", "clock jumps forward: 02:00 does not exist on 2026-03-08, left out"),
            ("2026-03-08T04:00:00-04:00", None),
        ]),
        ("30 1 * * *", {}, "2026-10-31T12:00", [
            ("2026-11-01T01:30:00-04:00", "clock goes back: 01:30 happens twice on 2026-11-01, runs at the first"),
            ("2026-11-02T01:30:00-05:00", None),
        ]),
        ("30 1 * * *", {"fold": "second"}, "2026-10-31T12:00", [
            ("2026-11-01T01:30:00-05:00", "clock goes back: 01:30 happens twice on 2026-11-01, runs at the second"),
        ]),
        ("30 1 * * *", {"fold": "both"}, "2026-10-31T12:00", [
            ("2026-11-01T01:30:00-04:00", "clock goes back: 01:30 happens twice on 2026-11-01, this is the first"),
            ("2026-11-01T01:30:00-05:00", "clock goes back: 01:30 happens twice on 2026-11-01, this is the second"),
        ]),
        ("@every 1h", {}, "2026-11-01T05:30", [("2026-11-01T01:00:00-05:00", None)]),
    ],
)  # fmt: skip
def test_previews_mark_what_daylight_saving_does(
    expression: str, policies: dict[str, object], after: str, expected: list[tuple[str, str | None]]
) -> None:
    given = Policies.from_dict(policies, recurring=True)
    runs = upcoming(expression, "America/New_York", given, utc(after), len(expected))
    assert [(run.local.isoformat(), run.note) for run in runs] == expected
    # Through UTC: datetimes of two zones never compare equal in a fold.
    assert [run.at for run in runs] == [run.local.astimezone(UTC) for run in runs]


def test_previews_end_with_the_schedule() -> None:
    policies = Policies.from_dict({"max_runs": 5, "end_at": "2026-03-02T14:00:00Z"}, recurring=True)
    assert len(upcoming("0 * * * *", "UTC", policies, NOW, 10)) == 2
    assert len(upcoming("* * * * *", "UTC", policies, NOW, 10, runs=2)) == 3


def test_now_may_be_in_any_zone() -> None:
    from app.schedule.zones import zone

    where = zone("Asia/Tokyo")
    local: datetime = utc("2026-03-02T12:01").astimezone(where)
    result = plan(
        "* * * * *", "UTC", None, job_id=JOB, next_run_at=local, now=NOW.astimezone(where), until=NOW + HORIZON
    )
    assert result == planned("* * * * *", "2026-03-02T12:01")
