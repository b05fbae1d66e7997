"""From the forms a schedule may have to a job's first run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.api import requests
from app.api.problems import Fault
from app.api.scheduling import Planned, plan
from app.domain.ids import uuid7

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB_ID = uuid7(NOW.timestamp())


def planned(**body: Any) -> Planned:
    made = plan(_read(body), JOB_ID, "default", NOW, lambda task_id: True)
    assert isinstance(made, Planned), made
    return made


def faults(**body: Any) -> dict[str, str]:
    made = plan(_read(body), JOB_ID, "default", NOW, lambda task_id: task_id == "t")
    assert not isinstance(made, Planned)
    assert all(isinstance(fault, Fault) for fault in made)
    return dict(made)


def _read(body: dict[str, Any]) -> requests.Read:
    return requests.read_job(json.dumps({"task_id": "t"} | body).encode())


@pytest.mark.parametrize("schedule", [None, "now", " NOW ", {"type": "NOW"}])
def test_without_a_time_it_is_now(schedule: object) -> None:
    job = planned(schedule=schedule).job
    assert (job.schedule_type, job.run_at, job.expression, job.timezone) == ("NOW", None, None, "UTC")
    assert job.runs_at(NOW) == NOW


@pytest.mark.parametrize(
    ("body", "timezone"),
    [
        ({"schedule": "2026-03-02T11:00:00+01:00"}, "UTC"),
        ({"schedule": "2026-03-02T10:00:00Z"}, "UTC"),
        ({"schedule": {"date": "2026-03-02T10:00:00Z"}}, "UTC"),
        (
            {"schedule": {"type": "DATE", "expression": None, "timezone": "UTC", "run_at": "2026-03-02T10:00:00Z"}},
            "UTC",
        ),
        ({"schedule": {"date": "2026-03-02T11:00", "timezone": "Europe/Berlin"}}, "Europe/Berlin"),
        ({"schedule": "2026-03-02T11:00", "timezone": "Europe/Berlin"}, "Europe/Berlin"),
    ],
)
def test_a_date_in_any_form_is_an_instant(body: dict[str, Any], timezone: str) -> None:
    job = planned(**body).job
    assert (job.schedule_type, job.run_at, job.timezone) == ("DATE", datetime(2026, 3, 2, 10, tzinfo=UTC), timezone)


@pytest.mark.parametrize(
    "body",
    [
        {"schedule": "0 10 * * *"},
        {"schedule": {"type": "CRON", "expression": "0 10 * * *", "timezone": "UTC"}},
        {"schedule": {"cron": "0 10 * * *"}},
        {"schedule": {"expression": "0 10 * * *"}, "timezone": "UTC"},
    ],
)
def test_cron_in_any_form_has_its_first_run(body: dict[str, Any]) -> None:
    job = planned(**body).job
    assert (job.schedule_type, job.expression, job.timezone) == ("CRON", "0 10 * * *", "UTC")
    assert job.run_at == datetime(2026, 3, 2, 10, tzinfo=UTC)


def test_an_interval_counts_from_its_creation() -> None:
    job = planned(schedule="@every 90s").job
    assert (job.anchor_at, job.run_at) == (NOW, NOW + timedelta(seconds=90))


def test_a_time_that_the_clock_jumps_over_is_taken_at_the_jump_with_a_warning() -> None:
    made = planned(schedule={"date": "2026-03-08T02:30", "timezone": "America/New_York"})
    assert made.job.run_at == datetime(2026, 3, 8, 7, tzinfo=UTC)
    assert "does not exist" in made.warnings[0]


def test_a_time_that_the_clock_shows_twice_is_the_first_with_a_warning() -> None:
    made = planned(schedule={"date": "2026-11-01T01:30", "timezone": "America/New_York"})
    assert made.job.run_at == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert "twice" in made.warnings[0]


def test_a_date_in_the_past_runs_now_with_a_warning() -> None:
    made = planned(schedule="2020-01-01T00:00:00Z")
    assert made.job.runs_at(NOW) == NOW
    assert "past" in made.warnings[0]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"schedule": "2026-03-08T02:30"}, {"/schedule"}),
        ({"schedule": "2036-03-02T00:00:00Z"}, {"/schedule"}),
        ({"schedule": "2026-02-30T00:00:00Z"}, {"/schedule"}),
        ({"schedule": "1796024945"}, {"/schedule"}),
        ({"schedule": "tomorrow"}, {"/schedule"}),
        ({"schedule": ""}, {"/schedule"}),
        ({"schedule": "0 0 30 2 *"}, {"/schedule"}),
        ({"schedule": "* * * * * * *"}, {"/schedule"}),
        ({"schedule": "@reboot"}, {"/schedule"}),
        ({"schedule": "*/61 * * * *", "timezone": "UTC+5"}, {"/schedule", "/timezone"}),
        ({"schedule": {"cron": "*/0 * * * *", "timezone": "\0"}}, {"/schedule/timezone"}),
        ({"schedule": {"cron": "* * * * *", "timezone": "localtime"}}, {"/schedule/timezone"}),
        ({"schedule": {"cron": "* * * * *", "date": "2026-03-08T02:30Z"}}, {"/schedule/cron", "/schedule/date"}),
        ({"schedule": {"type": "CRON"}}, {"/schedule/expression"}),
        ({"schedule": {"type": "DATE"}}, {"/schedule/date"}),
        ({"schedule": {"type": "NOW", "cron": "* * * * *"}}, {"/schedule/cron"}),
        ({"schedule": {}}, {"/schedule"}),
        ({"schedule": {"cron": "* * * * *", "timezone": "UTC"}, "timezone": "UTC"}, {"/timezone"}),
        ({"task_id": "x", "schedule": "x", "policies": {"gap": 1}}, {"/task_id", "/schedule", "/policies/gap"}),
        ({"schedule": 5, "policies": {"overlop": "skip"}}, {"/schedule", "/policies/overlop"}),
        ({"policies": {"max_runs": 3}}, {"/policies/max_runs"}),
    ],
)
def test_every_fault_is_named_at_its_place(body: dict[str, Any], pointers: set[str]) -> None:
    assert set(faults(**body)) == pointers


def test_policies_that_change_nothing_are_not_stored() -> None:
    assert planned(schedule="* * * * *", policies={"overlap": "skip"}).job.policies is None


def test_policies_of_a_one_off_reach_its_execution() -> None:
    job = planned(
        schedule="2026-03-02T10:00:00Z", policies={"overlap": "skip", "jitter_s": 60, "expires_after_s": 5}
    ).job
    assert job.run_at is not None
    assert job.due_at is not None
    assert job.overlap == "skip"
    assert timedelta(0) < job.due_at - job.run_at < timedelta(seconds=60)
    assert job.expires_at == job.due_at + timedelta(seconds=5)


def test_a_schedule_that_never_runs_within_its_bounds_is_refused() -> None:
    found = faults(schedule="0 10 * * *", policies={"end_at": "2026-03-01T13:00:00Z"})
    assert set(found) == {"/schedule"}


def test_a_date_before_what_can_be_stored_runs_now_too() -> None:
    made = planned(schedule="1970-01-01T00:00:00Z")
    assert made.job.run_at == datetime(2000, 1, 1, tzinfo=UTC)
    assert made.warnings == ["the date is in the past: the job starts now"]


@pytest.mark.parametrize(
    "body",
    [
        {"schedule": "0 0 31 12 *", "policies": {"start_at": "2199-12-30T00:00:00Z", "exclude": ["2199-12-31"]}},
        {"schedule": "0 0 31 12 *", "policies": {"exclude": ["* * 31 12 *"]}},
        {"schedule": "0 0 29 2 *", "policies": {"start_at": "2199-01-01T00:00:00Z"}},
    ],
)
def test_what_would_run_beyond_what_can_be_stored_never_runs(body: dict[str, Any]) -> None:
    assert set(faults(**body)) == {"/schedule"}
