"""/tasks: what jobs can name. Python tasks are registered by workers, HTTP tasks here; either can be paused."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from flask import Blueprint, Response
from msgspec import Meta, Struct

from app.api import auth, parameters, problems, responses, structs
from app.api.json_checks import pointer
from app.api.problems import Fault, Problem
from app.api.requests import Name, Retries, Text
from app.api.services import current
from app.api.wording import NO_CONTROLS, STATUS
from app.domain import endpoint as endpoints
from app.domain.addresses import is_allowed, networks
from app.domain.endpoint import Endpoint
from app.domain.ids import TASK_ID, TASK_ID_RULE
from app.domain.limits import Limits
from app.domain.retry import DAY_S, Backoff
from app.store import endpoints as store
from app.store import verbs
from app.store.endpoints import HttpTask, IsPython

blueprint = Blueprint("tasks", __name__)

Status = Annotated[str, Meta(pattern=STATUS)]
Seconds = Annotated[float, Meta(gt=0, le=DAY_S)]
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]{0,2000}")


class BackoffPut(Struct, forbid_unknown_fields=True):
    """Seconds until the next attempt: base · factor^(n-1), never more than cap; jitter is the share left to chance."""

    base_s: Annotated[float, Meta(ge=0, le=DAY_S)] = 5.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 5.0
    cap_s: Annotated[float, Meta(ge=0, le=DAY_S)] = DAY_S
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0


class TaskPut(Struct, forbid_unknown_fields=True):
    """The body of `PUT /tasks/{task_id}`: an endpoint that the parameters of jobs are sent to."""

    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    method: Literal["POST", "PUT", "PATCH", "GET", "DELETE"] = "POST"
    headers: dict[str, str] = {}
    expected_statuses: Annotated[list[Status], Meta(min_length=1, max_length=100)] = msgspec.field(
        default_factory=lambda: list(endpoints.EXPECTED)
    )
    retried_statuses: Annotated[list[Status], Meta(max_length=100)] = msgspec.field(
        default_factory=lambda: list(endpoints.RETRIED)
    )
    secret: Annotated[str, Meta(max_length=200)] | None = None
    timeout_s: Seconds = 30.0
    description: Text | None = None
    queue: Name = "default"
    priority: Annotated[int, Meta(ge=1, le=4)] = 2
    max_retries: Retries = 3
    backoff: BackoffPut = msgspec.field(default_factory=BackoffPut)
    max_concurrent: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    concurrency_key: Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_CONTROLS)] | None = None
    max_per_key: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    rate_per_s: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    parameters_schema: dict[str, Any] | None = None


class TaskPatch(Struct, forbid_unknown_fields=True):
    """The body of `PATCH /tasks/{task_id}`. While a task is paused, its executions wait; `note` says why, to others."""

    paused: bool
    note: Text | None = None


@blueprint.get("/tasks")
def index() -> Response:
    return responses.answer({"tasks": [_shown(row) for row in current().tasks.all()]})


@blueprint.get("/tasks/<path:task_id>")
def show(task_id: str) -> Response:
    return responses.answer(_task(task_id))


@blueprint.put("/tasks/<path:task_id>")
def put(task_id: str) -> Response:
    if not TASK_ID.fullmatch(task_id):
        raise Problem(422, f"a task_id is {TASK_ID_RULE}")
    asked, _ = structs.read(TaskPut)
    limits = Limits(asked.max_concurrent, asked.concurrency_key, asked.max_per_key, asked.rate_per_s)
    faults = [Fault(pointer("", name), rule) for name, rule in limits.faults()]
    faults += _endpoint_faults(asked) + _schema_faults(asked.parameters_schema)
    if faults:
        raise problems.invalid(faults)
    task = HttpTask(
        task_id=task_id,
        endpoint=Endpoint(
            url=asked.url,
            method=asked.method,
            headers=asked.headers,
            expected=tuple(asked.expected_statuses),
            retried=tuple(asked.retried_statuses),
            secret=asked.secret or "",
        ),
        description=asked.description,
        queue=asked.queue,
        priority=asked.priority,
        max_retries=asked.max_retries,
        timeout_s=asked.timeout_s,
        backoff=Backoff(asked.backoff.base_s, asked.backoff.factor, asked.backoff.cap_s, asked.backoff.jitter),
        limits=limits,
        parameters_schema=asked.parameters_schema,
    )
    try:
        is_new, secret = auth.act(lambda c: store.put(c, task))
    except IsPython as error:
        raise Problem(409, str(error)) from None
    current().tasks.forget()
    shown = _task(task_id)
    if secret is not None:
        shown["secret"] = secret
    return responses.answer(shown, 201 if is_new else 200, {"Location": f"/tasks/{task_id}"} if is_new else None)


@blueprint.patch("/tasks/<path:task_id>")
def edit(task_id: str) -> Response:
    _task(task_id)
    asked, _ = structs.read(TaskPatch)
    if asked.note is not None and not asked.paused:
        raise problems.invalid([Fault("/note", "goes with a pause")])
    if asked.paused:
        auth.act(lambda c: verbs.pause_task(c, task_id, asked.note))
    else:
        auth.act(lambda c: verbs.resume_task(c, task_id))
    return responses.answer(_task(task_id))


def _endpoint_faults(asked: TaskPut) -> list[Fault]:
    faults: list[Fault] = []
    if (rule := endpoints.url_fault(asked.url)) or (rule := _address_fault(asked.url)):
        faults.append(Fault("/url", rule))
    for name, value in asked.headers.items():
        at = pointer("/headers", name)
        if not _HEADER_NAME.fullmatch(name):
            faults.append(Fault(at, "is no name of a header"))
        elif endpoints.is_ours(name):
            faults.append(Fault(at, "is set by pgtick itself"))
        elif not _HEADER_VALUE.fullmatch(value) or value != value.strip():
            faults.append(Fault(at, "is no value of a header"))
    if asked.secret is not None and endpoints.secret_bytes(asked.secret) is None:
        faults.append(Fault("/secret", "must be whsec_ and 24 to 64 bytes in base64; left out, one is made"))
    return faults


def _address_fault(url: str) -> str | None:
    """Early word about what workers would refuse; of names only they know, when they connect."""
    host = endpoints.host_of(url)
    if host == "localhost" or host.endswith(".localhost"):
        host = "127.0.0.1"
    allowed = networks(current().settings.http_allow)
    if endpoints.is_address(host) and not is_allowed(host, allowed):
        return "is at an address that is not public, and not in PGTICK_HTTP_ALLOW"
    return None


def _schema_faults(schema: dict[str, Any] | None) -> list[Fault]:
    if schema is None:
        return []
    try:
        parameters.validator(msgspec.json.encode(schema).decode())
    except parameters.BadSchema as error:
        return [Fault("/parameters_schema", f"is no JSON schema: {error}")]
    return []


def _task(task_id: str) -> dict[str, Any]:
    for row in current().tasks.all(task_id) if TASK_ID.fullmatch(task_id) else ():
        return _shown(row)
    raise problems.not_found("task")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    http = row.pop("http")
    return row | {
        "created_at": responses.rfc3339(row["created_at"]),
        "updated_at": responses.rfc3339(row["updated_at"]),
        "paused_at": responses.rfc3339(row["paused_at"]),
        # Its address may hold what is nobody else's business.
        "http": None if auth.only() is not None else http,
    }
