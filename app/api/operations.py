"""/operations: one act on all executions that a filter finds."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from flask import Blueprint, Response
from msgspec import Meta, Struct

from app.api import auth, filters, problems, responses, structs
from app.api.idempotency import made_at, read_key
from app.api.pagination import read_limit
from app.api.problems import Fault
from app.api.requests import Name, Text
from app.api.services import current
from app.clock import clock
from app.domain.execution import CANCELLED, FAILED, IN_PROGRESS, PENDING, RETRYING, SKIPPED
from app.schedule.dates import parse_instant
from app.schedule.errors import ScheduleError
from app.store import operations
from app.store.idempotency import once
from app.store.operations import Wanted

blueprint = Blueprint("operations", __name__)

FARTHEST = timedelta(days=3653)
ALLOWED = {
    "cancel": (PENDING, RETRYING, IN_PROGRESS),
    "rerun": (FAILED, CANCELLED, SKIPPED),
    "reschedule": (PENDING,),
}
"""The statuses that an action makes sense for."""
DEFAULT = {**ALLOWED, "rerun": (FAILED,)}
"""Those it is for when none is named."""


class Which(Struct, forbid_unknown_fields=True):
    """Executions to act on: those that meet every condition. Times are of `scheduled_at`, from start to before end."""

    user_id: Name | None = None
    task_id: Name | None = None
    status: Annotated[list[str], Meta(min_length=1, max_length=7)] | None = None
    start_time: str | None = None
    end_time: str | None = None
    error: Annotated[Text, Meta(min_length=1)] | None = None


class OperationPost(Struct, forbid_unknown_fields=True):
    """The body of `POST /operations`. `at` is the new time of what is rescheduled."""

    action: Literal["cancel", "rerun", "reschedule"]
    filter: Which
    at: str | None = None
    dry_run: bool = False


@blueprint.post("/operations")
def create() -> Response:
    asked, body = structs.read(OperationPost)
    wanted = _wanted(asked)
    user_id = auth.acting_user()
    key = read_key(user_id, body)
    if asked.dry_run:
        matched = current().pool.run(lambda c: operations.count(c, wanted))
        return responses.answer({"action": wanted.action, "dry_run": True, "matched": matched})

    made, replayed = auth.act(lambda c: once(c, key, lambda: str(operations.add(c, wanted, user_id)["operation_id"])))
    if not replayed:
        current().pool.run(lambda c: operations.begin(c, int(made)))
    row = current().pool.run(lambda c: operations.get(c, int(made)))
    assert row is not None
    return responses.answer(_shown(row), 202, made_at(f"/operations/{made}", replayed))


@blueprint.get("/operations")
def index() -> Response:
    filters.refuse_unknown("limit", "user_id")
    user_id = auth.user_to_list(filters.text_of("user_id"))
    limit = read_limit(filters.text_of("limit"))
    rows = current().pool.run(lambda c: operations.newest(c, user_id, limit))
    return responses.answer({"operations": [_shown(row) for row in rows]})


@blueprint.get("/operations/<operation_id>")
def show(operation_id: str) -> Response:
    known = operations.parse_id(operation_id)
    row = None if known is None else current().pool.run(lambda c: operations.get(c, known))
    if row is None:
        raise problems.not_found("operation")
    return responses.answer(_shown(row))


@blueprint.delete("/operations/<operation_id>")
def stop(operation_id: str) -> Response:
    known = operations.parse_id(operation_id)
    if known is not None:
        auth.act(lambda c: operations.stop(c, known))
    return show(operation_id)


def _wanted(asked: OperationPost) -> Wanted:
    faults: list[Fault] = []
    given = {name: value for name, value in msgspec.structs.asdict(asked.filter).items() if value is not None}
    if not given:
        faults.append(Fault("/filter", "names nothing; all of everybody is not a filter"))
    statuses = [status.upper() for status in asked.filter.status or DEFAULT[asked.action]]
    for place, status in enumerate(statuses):
        if status not in ALLOWED[asked.action]:
            allowed = ", ".join(ALLOWED[asked.action])
            faults.append(Fault(f"/filter/status/{place}", f"{asked.action} is for {allowed}, not {status[:40]}"))
    where: dict[str, Any] = {"statuses": statuses}
    bounds: list[datetime] = []
    for name in ("start_time", "end_time"):
        if name in given and (at := _instant(given[name], f"/filter/{name}", faults)):
            where[name] = at.isoformat()
            bounds.append(at)
    if len(bounds) == 2 and bounds[0] >= bounds[1]:
        faults.append(Fault("/filter/end_time", "must be later than start_time"))
    at = None
    if asked.action == "reschedule":
        at = None if asked.at is None else _instant(asked.at, "/at", faults)
        if asked.at is None:
            faults.append(Fault("/at", "is required: when they are to run"))
        elif at is not None and at > clock.now_utc() + FARTHEST:
            faults.append(Fault("/at", "is more than 10 years ahead"))
        at = at and max(at, clock.now_utc())
    elif asked.at is not None:
        faults.append(Fault("/at", f"does not go with {asked.action}"))
    if task_id := given.get("task_id"):
        where["task_key"] = current().tasks.key(task_id)
        if where["task_key"] is None:
            faults.append(Fault("/filter/task_id", f"no task {task_id!r} is registered"))
    if faults:
        raise problems.invalid(faults)
    where |= {name: given[name] for name in ("task_id", "error") if name in given}
    if user_id := auth.user_to_list(asked.filter.user_id):
        where["user_id"] = user_id
    return Wanted(asked.action, where, at)


def _instant(text: str, at: str, faults: list[Fault]) -> datetime | None:
    try:
        return parse_instant(text, at)
    except ScheduleError as error:
        faults.append(Fault(at, error.rule))
        return None


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    over = row["finished_at"] is not None
    return {
        "operation_id": str(row["operation_id"]),
        "user_id": row["user_id"],
        "action": row["action"],
        "filter": {name: value for name, value in row["filter"].items() if name != "task_key"},
        "at": responses.rfc3339(row["at"]),
        "state": "FINISHED" if over else "RUNNING",
        "matched": row["matched"],
        "done": row["done"],
        "refused": row["refused"],
        "problem": row["problem"],
        "created_at": responses.rfc3339(row["created_at"]),
        "worked_at": responses.rfc3339(row["worked_at"]),
        "finished_at": responses.rfc3339(row["finished_at"]),
    }
