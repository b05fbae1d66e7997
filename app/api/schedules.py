"""/schedules: what an expression means before it is saved, and how many starts all of them make."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from flask import Blueprint, Response
from msgspec import Meta, Struct

from app.api import problems, requests, responses, scheduling
from app.api.bodies import JSON, read_body
from app.api.json_checks import pointer
from app.api.problems import Fault
from app.api.scheduling import MOST_RUNS
from app.api.services import current
from app.clock import clock
from app.domain.ids import uuid7
from app.schedule import horizon
from app.schedule.busy import Grids, starts_per_minute
from app.schedule.cron import parse
from app.schedule.dates import parse_date
from app.schedule.errors import ScheduleError
from app.store import monitoring

MOST_GRIDS = 20_000
DAY_MINUTES = 1_440

blueprint = Blueprint("schedules", __name__)


class PreviewPost(Struct, forbid_unknown_fields=True):
    """A schedule to look at before it is saved."""

    schedule: Any
    timezone: str | None = None
    after: str | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_RUNS)] = 10
    policies: dict[str, Any] | None = None


FIELDS = PreviewPost.__struct_fields__


@blueprint.post("/schedules/preview")
def preview() -> Response:
    _, body = read_body(JSON)
    given = requests.read_object(body)
    found = given if isinstance(given, list) else preview_of(given, clock.now_utc())
    if isinstance(found, list):
        raise problems.invalid(found)
    return responses.answer(found)


@blueprint.get("/schedules/forecast")
def forecast() -> Response:
    """Starts per minute of the coming 24 h: every active schedule, by its expression."""
    grids = current().pool.run(lambda c: monitoring.grids(c, None, MOST_GRIDS))
    return responses.answer(forecast_of(grids, clock.now_utc()))


def forecast_of(grids: Grids, now: datetime) -> dict[str, Any]:
    """How many starts they make in each minute of 24 hours, and when most do."""
    start = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    starts, left = starts_per_minute(grids, start, DAY_MINUTES)
    peak = max(range(DAY_MINUTES), key=lambda minute: starts[minute])
    return {
        "start": responses.seconds(start),
        "minutes": starts,
        "total": sum(starts),
        "peak": {"at": responses.seconds(start + timedelta(minutes=peak)), "starts": starts[peak]},
        "jobs_left_out": left,
    }


def preview_of(given: dict[str, Any], now: datetime) -> dict[str, Any] | list[Fault]:
    """The next runs of a schedule and what it says in plain English, or everything that is wrong with the request."""
    faults = [
        Fault(pointer("", name), f"there is no such field; there are {', '.join(FIELDS)}")
        for name in given
        if name not in FIELDS
    ]
    if given.get("schedule") is None:
        faults.append(Fault("/schedule", "is required"))
    n = given.get("n", 10)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_RUNS:
        faults.append(Fault("/n", f"must be a whole number from 1 to {MOST_RUNS}"))
    after = now
    if given.get("after") is not None:
        try:
            after, _ = parse_date(given["after"], None, now, field="after")
        except ScheduleError as error:
            faults.append(Fault("/after", error.rule))
    job = {name: given[name] for name in ("schedule", "timezone", "policies") if name in given}
    planned = scheduling.plan(
        requests.explain({"task_id": "-", **job}), uuid7(now.timestamp()), "", now, lambda _: True
    )
    if isinstance(planned, list):
        return faults + planned
    if faults:
        return faults
    one = planned.job
    if one.expression is None:
        at = one.runs_at(now)
        run = {"at": responses.seconds(at), "local": responses.local(at, one.timezone), "note": None}
        return {"runs": [run], "description": "once", "timezone": one.timezone, "warnings": planned.warnings}
    runs = horizon.upcoming(one.expression, one.timezone, planned.policies, after, n, anchor=after)
    return {
        "runs": [responses.run(run) for run in runs],
        "description": parse(one.expression, one.timezone).describe(),
        "timezone": one.timezone,
        "warnings": planned.warnings,
    }
