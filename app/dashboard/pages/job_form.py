"""The forms that make and edit a job: checked while they are filled in, by the same code that takes `POST /jobs`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from flask import Response, request
from werkzeug.wrappers import Response as AnyResponse

from app.dashboard import backend, samples, session
from app.dashboard.backend import Refused
from app.dashboard.blueprint import blueprint, go, page
from app.dashboard.pages.jobs import chosen_policies
from app.schedule.policies import MISSED, OVERLAPS
from app.schedule.zones import zone_names

# What the API blames, and the field of the form that holds it.
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
EMPTY = {"when": "now"}
_WHEN = {"NOW": "now", "DATE": "date", "CRON": "cron"}
_NUMBERS = ("max_retries", "timeout_s")
_POLICIES = ("overlap", "missed", "jitter_s", "expires_after_s")
_TIMING = ("when", "expression", "date", "timezone")

Given = Mapping[str, str]


@dataclass
class Preview:
    """What a form would do: what is wrong with it by field, or when the job runs, and what an edit changes."""

    faults: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    words: str | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)
    zone: str = "UTC"
    changes: list[tuple[str, str, str]] | None = None


@blueprint.route("/ui/jobs/new", methods=["GET", "POST"])
def new_job() -> AnyResponse:
    if request.method == "GET":
        return _form(EMPTY | {"timezone": session.viewer_zone().key} | dict(request.args), Preview())
    found = preview(request.form)
    if found.faults:
        return _form(request.form, found, 422)
    made = backend.send("POST", "/jobs", body_of(request.form)[0].encode())
    return go("job", job_id=made["job_id"], said="created")


@blueprint.post("/ui/jobs/preview")
def preview_job() -> Response:
    """What the form's script asks for while it is filled in."""
    return page("preview.html", preview=preview(request.form))


@blueprint.route("/ui/jobs/<job_id>/edit", methods=["GET", "POST"])
def edit_job(job_id: str) -> AnyResponse:
    job = backend.get(f"/jobs/{job_id}")
    if request.method == "GET":
        return _form(form_of(job), Preview(), job=job)
    given = {"task_id": job["task_id"]} | dict(request.form)
    found = preview(given, job)
    if not found.faults:
        try:
            edited = backend.send("PATCH", f"/jobs/{job_id}", changed_body(form_of(job), given).encode())
        except Refused as refused:
            if refused.status != 422:
                raise
            found.faults = _by_field(refused)
        else:
            return go("job", job_id=job_id, said="edited" if edited["changed"] else "same")
    return _form(given, found, 422, job=job)


@blueprint.post("/ui/jobs/<job_id>/preview")
def preview_edit(job_id: str) -> Response:
    job = backend.get(f"/jobs/{job_id}")
    return page("preview.html", preview=preview({"task_id": job["task_id"]} | dict(request.form), job))


def preview(form: Given, job: dict[str, Any] | None = None) -> Preview:
    """Has the API check a form; of `job` it is the edited definition."""
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
    asked = {
        "schedule": schedule["expression"] or schedule.get("run_at") or "now",
        "timezone": schedule["timezone"],
        "policies": planned["policies"],
    }
    coming = backend.send("POST", "/schedules/preview", json.dumps(asked).encode())
    words = "once, at once" if schedule["type"] == "NOW" else coming["description"]
    found = Preview({}, planned["warnings"], words, coming["runs"], schedule["timezone"])
    if job is not None:
        before = form_of(job)
        names = _changed(before, form)
        found.changes = [(name, before.get(name, ""), form.get(name, "").strip()) for name in names]
    return found


def body_of(form: Given) -> tuple[str, dict[str, list[str]]]:
    """The body of `POST /jobs` that a form says, and what cannot even be said in one."""
    given = {name: text.strip() for name, text in form.items()}
    faults: dict[str, list[str]] = {}
    body: dict[str, Any] = {"task_id": given.get("task_id", "")}
    if given.get("user_id"):
        body["user_id"] = given["user_id"]
    body |= {name: _number(name, given[name], faults) for name in _NUMBERS if given.get(name)}
    body |= _timing(given)
    policies = {
        name: _policy(name, given[name], faults)
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
    return _with_parameters(body, parameters), faults


def changed_body(before: Given, after: Given) -> str:
    """The body of `PATCH /jobs/{id}` that turns one form into another; what is the same in both is left out."""
    names = _changed(before, after)
    given = {name: text.strip() for name, text in after.items()}
    body: dict[str, Any] = {
        name: _number(name, given[name], {}) if given.get(name) else None for name in _NUMBERS if name in names
    }
    if any(name in names for name in _TIMING):
        body |= _timing(given) or {"schedule": "now"}
    policies = {
        name: _policy(name, given[name], {}) if given.get(name) else None for name in _POLICIES if name in names
    }
    if policies:
        body["policies"] = policies
    return _with_parameters(body, given["parameters"] or "{}") if "parameters" in names else json.dumps(body)


def form_of(job: dict[str, Any]) -> dict[str, str]:
    """A job as its form has it; nothing for what is left to the defaults."""
    schedule, policies = job["schedule"], chosen_policies(job)
    form = {
        "task_id": job["task_id"],
        "when": _WHEN[schedule["type"]],
        "expression": schedule["expression"] or "",
        "timezone": schedule["timezone"],
        "parameters": json.dumps(job["parameters"], indent=2, ensure_ascii=False),
    }
    if schedule["type"] == "DATE":
        at = datetime.fromisoformat(schedule["run_at"]).astimezone(session.viewer_zone())
        form |= {"date": f"{at:%Y-%m-%dT%H:%M:%S}", "timezone": session.viewer_zone().key}
    form |= {name: f"{job[name]:g}" for name in _NUMBERS if job[name] is not None}
    return form | {name: str(policies[name]) for name in _POLICIES if name in policies}


def _changed(before: Given, after: Given) -> list[str]:
    """Fields that differ. Those that do not count for this kind of schedule do not."""
    kind = after.get("when", "now")
    counted = {"now": ("when",), "date": ("when", "date", "timezone"), "cron": ("when", "expression", "timezone")}
    names = [*counted.get(kind, _TIMING), "parameters", *_NUMBERS, *_POLICIES]
    return [name for name in names if _value(name, before) != _value(name, after)]


def _value(name: str, form: Given) -> Any:
    text = form.get(name, "").strip()
    if name != "parameters":
        return text
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text


def _timing(given: Given) -> dict[str, Any]:
    timezone = given.get("timezone") or "UTC"
    match given.get("when"):
        case "cron":
            return {"schedule": {"type": "CRON", "expression": given.get("expression", "")}, "timezone": timezone}
        case "date":
            return {"schedule": {"type": "DATE", "date": given.get("date", "")}, "timezone": timezone}
    return {}


def _with_parameters(body: dict[str, Any], parameters: str) -> str:
    # As they were typed, so that the API sees (and keeps) the same digits and keys.
    return f"{json.dumps({**body, 'parameters': None})[: -len('null}')]}{parameters}}}"


def _policy(name: str, text: str, faults: dict[str, list[str]]) -> Any:
    return _number(name, text, faults) if name.endswith("_s") else text


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


@dataclass
class Choice:
    """A task to choose: its name, whether a worker knows it, and what its parameters begin with."""

    task_id: str
    served: bool
    parameters: str
    members: str


def _choice(task: dict[str, Any]) -> Choice:
    schema = task["parameters_schema"]
    told = [
        f"{name}{f' ({kind})' if kind else ''}{', required' if required else ''}"
        for name, kind, required in samples.members(schema)
    ]
    return Choice(task["task_id"], task["served"], samples.parameters(schema), "; ".join(told))


def _form(given: Given, found: Preview, status: int = 200, job: dict[str, Any] | None = None) -> Response:
    tasks = [_choice(task) for task in backend.get("/tasks")["tasks"]]
    chosen = next((task for task in tasks if task.task_id == given.get("task_id")), None)
    if "parameters" not in given:
        given = {**given, "parameters": chosen.parameters if chosen else "{}"}
    return page(
        "job_form.html",
        status,
        given=given,
        chosen=chosen,
        job=job,
        preview=found,
        tasks=tasks,
        zones=sorted(zone_names()),
        overlaps=OVERLAPS,
        missed=MISSED,
        errors_at=found.faults,
    )
