"""Previews and the forecast, and what the API says about times that are wrong."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from app.api.requests import read_job
from app.api.scheduling import plan
from app.store import monitoring
from tests.support.api import Api

JOB_ID = "01900000-0000-7000-8000-000000000000"


def preview(api: Api, status: int = 200, **body: Any) -> Any:
    answer = api.call("POST", "/schedules/preview", json=body)
    assert answer.status_code == status, answer.text
    return answer.json


def test_a_preview_marks_the_days_on_which_clocks_change(shared_api: Api) -> None:
    shown = preview(shared_api, schedule="30 2 * * *", timezone="America/New_York", after="2026-03-07T12:00:00Z", n=2)
    assert [run["at"] for run in shown["runs"]] == ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]
    assert [run["local"] for run in shown["runs"]] == ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"]
    assert shown["runs"][0]["note"]
    assert shown["runs"][1]["note"] is None
    assert shown["description"] == "at 02:30 every day"


@pytest.mark.parametrize("schedule", [{"cron": "@every 90s"}, "*/5 * * * *", "2026-12-24T18:00:00+01:00", "now"])
def test_every_form_of_a_schedule_can_be_previewed(shared_api: Api, schedule: Any) -> None:
    shown = preview(shared_api, schedule=schedule, n=3)
    assert 1 <= len(shown["runs"]) <= 3
    assert shown["description"]


def test_policies_count_in_a_preview(shared_api: Api) -> None:
    shown = preview(
        shared_api,
        schedule="0 10 * * *",
        after="2026-12-23T12:00:00Z",
        n=100,
        policies={"exclude": ["2026-12-25"], "end_at": "2026-12-26T10:00:00Z"},
    )
    assert [run["at"] for run in shown["runs"]] == ["2026-12-24T10:00:00Z", "2026-12-26T10:00:00Z"]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/schedule"]),
        ({"schedule": "* * * * *", "n": 0}, ["/n"]),
        ({"schedule": "* * * * *", "n": True, "after": 5}, ["/after", "/n"]),
        ({"schedule": "* * * * *", "after": "2026-01-01T00:00"}, ["/after"]),
        ({"schedule": "* * * * *", "cron": "x"}, ["/cron"]),
        ({"schedule": "* * *", "timezone": "Mars"}, ["/schedule", "/timezone"]),
        ({"schedule": "* * * * *", "policies": {"fold": "third"}}, ["/policies/fold"]),
    ],
)
def test_a_preview_names_every_fault(shared_api: Api, body: dict[str, Any], pointers: list[str]) -> None:
    assert sorted(error["pointer"] for error in preview(shared_api, 422, **body)["errors"]) == pointers


def test_the_forecast_shows_the_herd(api: Api) -> None:
    for _ in range(3):
        api.created(schedule="17 3 * * *")
    api.created(schedule="0 * * * *", timezone="Asia/Kolkata")
    paused = api.created(schedule="* * * * *")["job_id"]
    api.call("POST", f"/jobs/{paused}/pause")
    shown = api.get("/schedules/forecast")
    assert (len(shown["minutes"]), shown["total"]) == (1440, 3 + 24)
    assert (shown["peak"]["starts"], datetime.fromisoformat(shown["peak"]["at"]).strftime("%H:%M")) == (3, "03:17")
    assert sum(count == 1 for count in shown["minutes"]) == 24
    assert shown["jobs_left_out"] == 0


def test_a_schedule_that_has_ended_is_in_no_forecast(api: Api, connection: psycopg.Connection) -> None:
    api.created(schedule="0 * * * *")
    connection.execute("update pgtick.schedules set next_run_at = null")
    assert api.get("/schedules/forecast")["total"] == 0
    assert monitoring.grids(connection, None, 10) == [], "on the dashboard"


@pytest.mark.parametrize(
    ("schedule", "timezone", "pointer"),
    [
        ("0 0 30 2 *", None, "/schedule"),
        ("0 0 31 4 *", None, "/schedule"),
        ("*/61 * * * *", None, "/schedule"),
        ("*/0 * * * *", None, "/schedule"),
        ("* * * * * * *", None, "/schedule"),
        ("@reboot", None, "/schedule"),
        ("H * * * *", None, "/schedule"),
        ("5 " * 200 + "* * * *", None, "/schedule"),
        *[("0 10 * * *", zone, "/timezone") for zone in (
            "UTC+5", "IST", "+05:30", "", "America", "../../etc/passwd", "localtime", "Factory", "UTC\0"
        )],
        ("2026-12-24T18:00:00", None, "/schedule"),
        ("2026-02-30T18:00:00Z", None, "/schedule"),
        ("2039-01-01T00:00:00Z", None, "/schedule"),
        (1790000000, None, "/schedule"),
        (True, None, "/schedule"),
        ({"date": 1790000000000}, None, "/schedule/date"),
        ({"date": "2026-12-24T18:00", "expression": "* * * * *"}, None, "/schedule/date"),
    ],
)  # fmt: skip
def test_each_time_that_is_wrong_is_refused_naming_field_and_rule(
    shared_api: Api, schedule: Any, timezone: str | None, pointer: str
) -> None:
    answer = shared_api.post({"schedule": schedule} | ({} if timezone is None else {"timezone": timezone}))
    assert answer.status_code == 422
    assert answer.json is not None
    assert pointer in [error["pointer"] for error in answer.json["errors"]]
    assert all(len(error["detail"]) > 10 for error in answer.json["errors"])
    assert shared_api.get("/jobs")["jobs"] == []


PARTS = [
    *"* */5 0 59 60 -1 1-5 5-1 1,2,,3 L LW 15W 5#3 5#9 MON-FRI JAN ? R H @daily @every 30s 1h30m".split(),  # noqa: SIM905
    *"99999999999999999999 2026-03-08T02:30 2026-13-01 T00:00Z now NOW % ' \" \\ null 1e400 0x10 +02:00".split(),  # noqa: SIM905
    *"Z 24:00 / // , - # $(id) {} L-3 */* 0/0".split(),  # noqa: SIM905
    *["\u0660", "é", "\U0001f600", "\t", "\n", "\u2028", "\x7f", "\x00"],
]
FUZZED = 3_000


def fuzzed(chance: random.Random) -> dict[str, Any]:
    """A body of cron and date parts, good and bad ones."""
    parts = PARTS if chance.random() < 0.7 else [*PARTS[:2], "0", "1-5", "59"]
    text = chance.choice([" ", " ", " ", "", "  "]).join(
        chance.choices(parts, k=chance.choice([1, 2, 5, 5, 5, 6, 7, 40]))
    )
    zone = chance.choice(["UTC", "America/New_York", chance.choice(PARTS)])
    form: Any = chance.choice([text, {"expression": text}, {"date": text, "timezone": zone}])
    return {"schedule": form, "timezone": zone}


def test_no_fuzzed_time_makes_the_server_fail(shared_api: Api) -> None:
    """Thousands through the whole application; the validation alone is tried with more."""
    chance = random.Random(20_260_308)
    statuses = {200: 0, 422: 0}
    for _ in range(FUZZED):
        answer = shared_api.call("POST", "/schedules/preview", json=fuzzed(chance) | {"n": 2})
        statuses[answer.status_code] += 1
    assert statuses[422] > FUZZED / 2
    assert statuses[200] > FUZZED / 200


def test_no_fuzzed_time_gets_past_validation_unanswered() -> None:
    """Either a job or faults that name a field, never an error: what the API does with a body."""
    chance = random.Random(20_261_101)
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    made = 0
    for _ in range(20_000):
        body = json.dumps({"task_id": "x"} | fuzzed(chance)).encode()
        found = plan(read_job(body), JOB_ID, "u", now, lambda _: True)
        if isinstance(found, list):
            assert found
            assert all(fault.pointer.startswith("/") and fault.detail for fault in found)
        else:
            made += 1
    assert made > 100
