"""The form that makes a job: checked while it is filled in, by the same code that takes `POST /jobs`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from flask import Response, request
from werkzeug.wrappers import Response as AnyResponse

from app.dashboard import backend, session
from app.dashboard.backend import Refused
from app.dashboard.blueprint import blueprint, go, page
from app.dashboard.pages.jobs import in_words, upcoming
from app.schedule import horizon
from app.schedule.policies import MISSED, OVERLAPS
from app.schedule.zones import zone_names

# What the API blames, and the field of the form that holds it; the longest that fits counts.
_PLACES = {
    "/task_id": "task_id",
    "/user_id": "user_id",
    "/schedule/expression": "expression",
    "/schedule/date": "date",
    "/schedule": "expression",
    "/timezone": "timezone",
    "/parameters": "parameters",
    "/max_retries": "max_retries",
    "/timeout_s": "timeout_s",
    "/policies/jitter_s": "jitter_s",
    "/policies/expires_after_s": "expires_after_s",
    "/policies/overlap": "overlap",
    "/policies/missed": "missed",
}
EMPTY = {"when": "now", "parameters": "{}"}
_NUMBERS = ("max_retries", "timeout_s")
_POLICIES = ("overlap", "missed", "jitter_s", "expires_after_s")


@dataclass
class Preview:
    """What a form would make: what is wrong with it by field, or when it runs."""

    faults: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    words: str | None = None
    runs: list[horizon.Run] = field(default_factory=list)
    once_at: str | None = None
    body: str | None = None


@blueprint.route("/ui/jobs/new", methods=["GET", "POST"])
def new_job() -> AnyResponse:
    if request.method == "GET":
        given = EMPTY | {"timezone": session.viewer_zone().key} | dict(request.args)
        return _form(given, Preview())
    found = preview(request.form)
    if found.faults or found.body is None:
        return _form(dict(request.form), found, 422)
    made = backend.send("POST", "/jobs", found.body.encode())
    return go("job", job_id=made["job_id"], said="created")


@blueprint.post("/ui/jobs/preview")
def preview_job() -> Response:
    """What the form's script asks for while it is filled in."""
    return page("preview.html", preview=preview(request.form))


def preview(form: Mapping[str, str]) -> Preview:
    body, faults = body_of(form)
    if faults:
        return Preview(faults)
    try:
        planned = backend.send("POST", "/jobs", body.encode(), dry_run="true")
    except Refused as refused:
        if refused.status not in (400, 422):
            raise
        return Preview(_by_field(refused))
    schedule = planned["schedule"]
    found = Preview(warnings=planned["warnings"], words=in_words(schedule), body=body)
    if schedule["type"] == "CRON":
        first = datetime.fromisoformat(planned["next_runs"][0])
        found.runs = upcoming(schedule["expression"], schedule["timezone"], planned["policies"], first)
    elif planned["next_runs"]:
        found.once_at = planned["next_runs"][0]
    return found


def body_of(form: Mapping[str, str]) -> tuple[str, dict[str, list[str]]]:
    """The body of `POST /jobs` that a form says, and what cannot even be said in one."""
    given = {name: text.strip() for name, text in form.items()}
    faults: dict[str, list[str]] = {}
    body: dict[str, Any] = {"task_id": given.get("task_id", "")}
    if given.get("user_id"):
        body["user_id"] = given["user_id"]
    body |= {name: _number(name, given[name], faults) for name in _NUMBERS if given.get(name)}
    match given.get("when"):
        case "cron":
            body["schedule"] = {"type": "CRON", "expression": given.get("expression", "")}
            body["timezone"] = given.get("timezone") or "UTC"
        case "date":
            body["schedule"] = {"type": "DATE", "date": given.get("date", "")}
            body["timezone"] = given.get("timezone") or "UTC"
    policies = {
        name: _number(name, given[name], faults) if name.endswith("_s") else given[name]
        for name in _POLICIES
        if given.get(name) and (name != "missed" or given.get("when") == "cron")
    }
    if policies:
        body["policies"] = policies
    parameters = given.get("parameters") or "{}"
    try:
        json.loads(parameters)
    except (ValueError, RecursionError) as error:
        faults["parameters"] = [f"is not JSON: {error}"]
    # As it was typed, so that the API sees (and keeps) the same digits and keys.
    text = json.dumps(body)
    return f'{text[:-1]}, "parameters": {parameters}}}', faults


def _number(name: str, text: str, faults: dict[str, list[str]]) -> float | None:
    try:
        value = float(text)
        return int(value) if value == int(value) else value
    except (ValueError, OverflowError):
        faults[name] = ["must be a number"]
        return None


def _by_field(refused: Refused) -> dict[str, list[str]]:
    faults: dict[str, list[str]] = {}
    for error in refused.errors or [{"pointer": "", "detail": refused.detail}]:
        pointer = error.get("pointer", "")
        place = next((name for prefix, name in _PLACES.items() if pointer.startswith(prefix)), "")
        inner = pointer.removeprefix("/parameters") if place == "parameters" else ""
        faults.setdefault(place, []).append(f"{inner}: {error['detail']}" if inner else error["detail"])
    return faults


def _form(given: Mapping[str, str], found: Preview, status: int = 200) -> Response:
    return page(
        "job_form.html",
        status,
        given=given,
        preview=found,
        tasks=backend.get("/tasks")["tasks"],
        zones=sorted(zone_names()),
        overlaps=OVERLAPS,
        missed=MISSED,
        errors_at=found.faults,
    )
