"""/openapi.json and /docs: the API as its own routes and the structures it reads and writes describe it."""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
from flask import Blueprint, Flask, Response, current_app, render_template
from msgspec import Struct

from app.api import editing, models, operations, requests, responses, schedules, tasks, verbs
from app.api.filters import LISTING, SORTS
from app.api.idempotency import HEADER
from app.api.pagination import MAX_LIMIT
from app.api.scheduling import MOST_RUNS
from app.api.structs import Nothing
from app.domain.execution import STATUSES
from app.domain.job import SCHEDULE_TYPES
from app.metrics import CONTENT_TYPE
from app.version import installed_version

JSON = "application/json"
PROBLEM = "application/problem+json"
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FOLDER = Path(__file__).parent / "docs"

blueprint = Blueprint("openapi", __name__)
pages = Blueprint("docs", __name__, template_folder="docs")


class Told(NamedTuple):
    """What there is to say about an endpoint: `answers` has a structure, or None for no JSON, for each status."""

    summary: str
    answers: dict[int, type[Struct] | None]
    body: type[Struct] | None = None
    query: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    keyed: bool = False
    traced: bool = False
    body_may_be_missing: bool = False
    detail: str = ""


def _job_post() -> type[Struct]:
    """The body of a job as it is read, its parameters as what they are: there they are left as text."""
    hints = get_type_hints(requests.JobPost, include_extras=True) | {"parameters": dict[str, Any]}
    fields: list[Any] = []
    for field in msgspec.structs.fields(requests.JobPost):
        default = {} if field.name == "parameters" else field.default
        fields.append((field.name, hints[field.name]) if field.required else (field.name, hints[field.name], default))
    doc = {"__doc__": requests.JobPost.__doc__}
    return msgspec.defstruct("JobPost", fields, namespace=doc, forbid_unknown_fields=True)


JOB_POST = _job_post()
BODY = (400, 413, 415, 422)

ENDPOINTS = {
    "jobs.create": Told(
        "Post a job",
        {201: models.CreatedJob, 200: models.CreatedJob},
        JOB_POST,
        ("dry_run",),
        (403, 409, *BODY),
        True,
        True,
        detail="A task, parameters, and when: now (left out), a date, or a cron expression. 200 answers `dry_run`.",
    ),
    "jobs.create_batch": Told(
        "Post up to 10,000 jobs, all or none",
        {201: models.CreatedBatch},
        list[JOB_POST],  # type: ignore[arg-type, valid-type]
        (),
        (403, 409, *BODY),
        True,
        True,
        detail="A JSON array of jobs, or one job a line as application/x-ndjson.",
    ),
    "jobs.index": Told(
        "List jobs, each with its newest execution that matches", {200: models.Jobs}, None, LISTING, (400, 404)
    ),
    "jobs.show": Told("Show a job", {200: models.Job}, errors=(404,)),
    "jobs.cancel": Told("Cancel what has not started of a job", {200: models.Job}, errors=(400, 404)),
    "verbs.edit": Told("Change a job", {200: models.ChangedJob}, editing.JobPatch, errors=(404, 409, *BODY)),
    "verbs.pause": Told(
        "Pause a job", {200: models.PausedJob}, verbs.Pause, errors=(404, 409, *BODY), body_may_be_missing=True
    ),
    "verbs.resume": Told(
        "Let a paused job go on", {200: models.ChangedJob}, Nothing, errors=(404, 409, *BODY), body_may_be_missing=True
    ),
    "verbs.run": Told(
        "Run a job once more, now",
        {202: models.StartedRun},
        Nothing,
        errors=(404, 409, *BODY),
        keyed=True,
        body_may_be_missing=True,
    ),
    "verbs.skip": Told(
        "Leave out one coming occurrence",
        {200: models.SkippedRun},
        verbs.Skip,
        errors=(404, 409, *BODY),
        body_may_be_missing=True,
    ),
    "verbs.backfill": Told(
        "Run what a schedule would have run in the past",
        {202: models.Backfilled, 200: models.Backfilled},
        verbs.Backfill,
        errors=(404, 409, *BODY),
        detail="200 answers `dry_run`.",
    ),
    "verbs.coming": Told("When a job runs next", {200: models.NextRuns}, None, ("n",), (400, 404, 409)),
    "schedules.preview": Told("When a schedule would run", {200: models.Preview}, schedules.PreviewPost, errors=BODY),
    "schedules.forecast": Told("Starts per minute of the coming 24 hours", {200: models.Forecast}, errors=(403,)),
    "executions.index": Told("List executions", {200: models.Executions}, None, LISTING, (400, 404)),
    "executions.of_job": Told("List the executions of a job", {200: models.Executions}, None, LISTING, (400, 404)),
    "executions.show": Told("Show an execution", {200: models.Execution}, errors=(404,)),
    "executions.cancel": Told(
        "Cancel an execution",
        {200: models.Execution, 202: models.Execution},
        Nothing,
        errors=(404, 409, *BODY),
        body_may_be_missing=True,
        detail="202: it runs, and has been told to stop.",
    ),
    "executions.rerun": Told(
        "Run an execution again that is over",
        {201: models.Execution},
        Nothing,
        errors=(404, 409, *BODY),
        keyed=True,
        body_may_be_missing=True,
    ),
    "operations.create": Told(
        "Cancel, rerun or reschedule all executions that a filter finds",
        {202: models.Operation, 200: models.Counted},
        operations.OperationPost,
        errors=(404, 409, *BODY),
        keyed=True,
        detail="With `dry_run` they are counted, and 200 answers.",
    ),
    "operations.index": Told("List operations", {200: models.Operations}, None, ("user_id", "limit"), (400, 404)),
    "operations.show": Told("Show how far an operation is", {200: models.Operation}, errors=(404,)),
    "operations.stop": Told("Stop an operation", {200: models.Operation}, errors=(400, 404)),
    "tasks.index": Told("List tasks", {200: models.Tasks}),
    "tasks.show": Told("Show a task", {200: models.Task}, errors=(404,)),
    "tasks.put": Told(
        "Register an HTTP task, or change one",
        {201: models.PutTask, 200: models.PutTask},
        tasks.TaskPut,
        errors=(403, 404, 409, *BODY),
    ),
    "tasks.edit": Told(
        "Pause a task, or let it go on",
        {200: models.Task},
        tasks.TaskPatch,
        errors=(403, 404, *BODY),
        detail="While it is paused, none of its executions starts: jobs can be posted, and wait. What runs goes on.",
    ),
    "health.show": Told("Whether jobs can be posted", {200: models.Health}),
    "metrics.show": Told("Everything for Prometheus", {200: None}, errors=(403,)),
}
"""All endpoints of the API; a test sees to it that none is missing."""

GROUPS = {
    "jobs": "Jobs",
    "verbs": "Jobs",
    "executions": "Executions",
    "operations": "Many at once",
    "schedules": "Schedules",
    "tasks": "Tasks",
    "health": "Health and metrics",
    "metrics": "Health and metrics",
}
"""What people look for the endpoints of a blueprint under, in the order they are shown."""

_TIME = {"type": "string", "format": "date-time", "description": "ISO 8601 with an offset"}
_WORD = {"type": "string", "minLength": 1, "maxLength": 1000, "pattern": "^[^\\x00]*$"}
QUERY: dict[str, tuple[str, dict[str, Any]]] = {
    "user_id": ("of this user only", {**_WORD, "maxLength": 200}),
    "status": (
        "one or several",
        {"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(STATUSES)}},
    ),
    "task_id": ("of this task only", {**_WORD, "maxLength": 200}),
    "start_time": ("scheduled at or after it", _TIME),
    "end_time": ("scheduled before it", _TIME),
    "schedule_type": ("of jobs of this kind only", {"type": "string", "enum": list(SCHEDULE_TYPES)}),
    "error": ("a part of the error, whatever its case", _WORD),
    "sort": ("newest first, or oldest", {"type": "string", "enum": list(SORTS)}),
    "limit": (
        f"items of a page; more than {MAX_LIMIT} are {MAX_LIMIT}",
        {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    ),
    "cursor": (
        "where the page begins: next_cursor of the one before",
        {"type": "string", "minLength": 1, "maxLength": 1000},
    ),
    "dry_run": ("only say what would be made", {"type": "boolean"}),
    "n": ("how many runs", {"type": "integer", "minimum": 1, "maximum": MOST_RUNS}),
}
TRACE = {
    "traceparent": "of W3C Trace Context: kept with the job, its runs hand it on; ignored when it is not valid",
    "tracestate": "goes with traceparent",
}
_PLACES = {
    "job_id": {"type": "string", "format": "uuid"},
    "execution_id": {
        "type": "string",
        "pattern": "^-?[0-9]{1,18}-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    },
    "operation_id": {"type": "string", "pattern": "^[0-9]{1,18}$"},
    "task_id": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$"},
}
_ALWAYS = (401, 429, 500, 503)


@blueprint.get("/openapi.json")
def show() -> Response:
    return responses.answer(document(current_app._get_current_object()))  # type: ignore[attr-defined]


@pages.get("/docs")
def show_page() -> Response:
    text = render_template("docs.html", spec=document(current_app._get_current_object()))  # type: ignore[attr-defined]
    return Response(text, headers={"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"})


@pages.get("/docs/docs.css")
def style() -> Response:
    return Response(
        (FOLDER / "docs.css").read_bytes(), mimetype="text/css", headers={"X-Content-Type-Options": "nosniff"}
    )


@lru_cache(maxsize=4)
def document(app: Flask) -> dict[str, Any]:
    """The description of this application in OpenAPI 3.1."""
    structures: list[Any] = [models.Problem]
    for told in ENDPOINTS.values():
        structures += [
            kind for kind in (told.body, *told.answers.values()) if kind is not None and kind not in structures
        ]
    schemas, components = msgspec.json.schema_components(structures, ref_template="#/components/schemas/{name}")
    names = {id(kind): schema for kind, schema in zip(structures, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for rule in sorted(app.url_map.iter_rules(), key=lambda rule: rule.rule):
        if rule.endpoint in ENDPOINTS:
            path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                told = ENDPOINTS[rule.endpoint]
                paths.setdefault(path, {})[method.lower()] = _operation(rule.endpoint, told, rule.arguments, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pgtick",
            "version": installed_version(),
            "description": "A job scheduler on PostgreSQL. Times are RFC 3339 in UTC; errors are RFC 9457 problems.",
        },
        "tags": [{"name": group} for group in dict.fromkeys(GROUPS.values())],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "where PGTICK_TOKENS is on"}
            },
        },
        "security": [{"token": []}, {}],
    }


def _operation(endpoint: str, told: Told, places: set[str], schemas: dict[int, Any]) -> dict[str, Any]:
    noun, verb = endpoint.split(".")
    made: dict[str, Any] = {"operationId": f"{noun}_{verb}", "tags": [GROUPS[noun]], "summary": told.summary}
    if told.detail:
        made["description"] = told.detail
    parameters = [{"name": name, "in": "path", "required": True, "schema": _PLACES[name]} for name in sorted(places)]
    for name in told.query:
        text, schema = QUERY[name]
        parameters.append({"name": name, "in": "query", "description": text, "schema": schema})
    if told.keyed:
        schema = {"type": "string", "pattern": "^[!-~]{1,255}$"}
        text = "the same key and body again: the first answer again, nothing is made twice"
        parameters.append({"name": HEADER, "in": "header", "description": text, "schema": schema})
    for name, text in TRACE.items() if told.traced else ():
        parameters.append({"name": name, "in": "header", "description": text, "schema": {"type": "string"}})
    if parameters:
        made["parameters"] = parameters
    if told.body is not None:
        made["requestBody"] = {
            "required": not told.body_may_be_missing,
            "content": {JSON: {"schema": schemas[id(told.body)]}},
        }
    made["responses"] = {str(status): _answer(status, kind, schemas) for status, kind in told.answers.items()}
    for status in sorted({*told.errors, *_ALWAYS}):
        content = {PROBLEM: {"schema": schemas[id(models.Problem)]}}
        made["responses"][str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return made


def _answer(status: int, kind: Any, schemas: dict[int, Any]) -> dict[str, Any]:
    if kind is None:
        content: dict[str, Any] = {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}
    else:
        content = {JSON: {"schema": schemas[id(kind)]}}
    return {"description": HTTPStatus(status).phrase, "content": content}
