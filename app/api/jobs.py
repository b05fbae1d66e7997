"""/jobs: creating, listing, showing and cancelling jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from flask import Blueprint, Response, request

from app.api import auth, filters, pagination, parameters, problems, requests, responses
from app.api.bodies import JSON, NDJSON, read_body
from app.api.idempotency import made_at, read_key
from app.api.occurrences import coming
from app.api.requests import Read
from app.api.scheduling import SHOWN_RUNS, Planned, plan
from app.api.services import current
from app.clock import clock
from app.domain.ids import parse_uuid, uuid7, uuid7s
from app.domain.trace import read_trace
from app.schedule.errors import ScheduleError, ScheduleErrors
from app.schedule.policies import Policies
from app.store import job_search, jobs, last_runs, verbs
from app.store.idempotency import Key
from app.store.last_runs import LastRun
from app.store.pool import Connection
from app.store.search import Filter, Row
from app.store.tasks import Tasks
from app.store.writer import Created

MAX_BATCH = 10_000

TURN_S = 0.01
"""After so long over a batch, other requests of this process get their turn."""

blueprint = Blueprint("jobs", __name__)


@blueprint.post("/jobs")
def create() -> Response:
    _, body = read_body(JSON)
    read = requests.read_job(body)
    services = current()
    # Before the clock is asked: the first question to the database also reads its clock.
    exists = _exists(services.tasks, {read.post.task_id})
    check = partial(parameters.faults, services.tasks)
    auth.refuse_other(read.post.user_id)
    user_id = read.post.user_id or auth.acting_user()
    planned = plan(read, uuid7(clock.now()), user_id, clock.now_utc(), exists, check)
    dry_run, key = filters.read_flag("dry_run"), read_key(user_id, body)
    if isinstance(planned, list):
        created = None if read.faults or dry_run else _made_before(key)
        if created is None:
            raise problems.invalid(planned)
    elif dry_run:
        return responses.answer(responses.created_job(planned, clock.now_utc()) | {"job_id": None})
    else:
        planned.job.trace = _trace()
        created = services.writer.create(planned.job, key)
    if created.replayed:
        # As it was planned then, not as it would be now.
        then = services.pool.run(lambda c: jobs.anchor(c, created.job_ids[0])) or created.at
        first = plan(read, created.job_ids[0], user_id, then, lambda _: True)
        planned = first if isinstance(first, Planned) else planned
    if isinstance(planned, list):
        raise problems.invalid(planned)
    planned.job.job_id = created.job_ids[0]
    return responses.answer(
        responses.created_job(planned, created.at), 201, made_at(f"/jobs/{created.job_ids[0]}", created.replayed)
    )


@blueprint.post("/jobs/batch")
def create_batch() -> Response:
    given, body = read_body(JSON, *NDJSON)
    items = requests.read_lines(body) if given in NDJSON else requests.read_batch(body)
    if not 1 <= len(items) <= MAX_BATCH:
        raise problems.invalid([problems.Fault("", f"a batch has 1 to {MAX_BATCH} jobs; this one has {len(items)}")])
    planned, faults = _plan_all(items)
    whole = b"[" + b",".join(requests.lines(body)) + b"]" if given in NDJSON else body
    key = read_key(auth.acting_user(), whole)
    if faults:
        before = None if any(item.faults for item in items) else _made_before(key)
        if before is None:
            raise problems.invalid(faults)
        created = before
    else:
        created = current().writer.create_all([one.job for one in planned], key)
    warnings = [{"index": index, "warning": warning} for index, one in enumerate(planned) for warning in one.warnings]
    body_out = {
        "created": len(created.job_ids),
        "job_ids": created.job_ids,
        "created_at": responses.rfc3339(created.at),
        "warnings": warnings,
    }
    return responses.answer(body_out, 201, {"Idempotent-Replayed": "true"} if created.replayed else None)


@blueprint.get("/jobs")
def index() -> Response:
    wanted, position, limit = filters.read_listing()
    users, now = current().users, clock.now_utc()

    def look(connection: Connection) -> tuple[job_search.Page, list[job_search.Listed]]:
        page = job_search.page(connection, wanted, position, limit, now, users)
        return page, job_search.with_last_runs(connection, page.items, now)

    page, found = current().pool.run(look)
    cursor = page.next and pagination.write_cursor(page.next)
    items = [_listed(item) for item in found]
    return responses.answer({"jobs": items, "next_cursor": cursor}, 200, pagination.link(cursor))


@blueprint.get("/jobs/<job_id>")
def show(job_id: str) -> Response:
    return responses.answer(whole_job(known_id(job_id)))


@blueprint.delete("/jobs/<job_id>")
def cancel(job_id: str) -> Response:
    known = known_id(job_id)
    if auth.act(lambda c: verbs.cancel(c, known)) is None:
        raise problems.not_found("job")
    return responses.answer(whole_job(known))


def known_id(job_id: str) -> str:
    """The id as the database has it; 404 for what is none."""
    known = parse_uuid(job_id)
    if known is None:
        raise problems.not_found("job")
    return known


def _plan_all(items: Sequence[Read]) -> tuple[list[Planned], list[dict[str, Any]]]:
    """The jobs of a batch, and what is wrong with them, as far as that helps."""
    services = current()
    exists = _exists(services.tasks, {item.post.task_id for item in items if "task_id" not in item.broken})
    check = partial(parameters.faults, services.tasks)
    default_user, now, trace = auth.acting_user(), clock.now_utc(), _trace()
    planned: list[Planned] = []
    faults: list[dict[str, Any]] = []
    turn = 0.0
    for index, (item, job_id) in enumerate(zip(items, uuid7s(len(items), clock.now()), strict=True)):
        if len(faults) >= problems.MAX_FAULTS:
            break
        if time.monotonic() > turn:
            time.sleep(0)
            turn = time.monotonic() + TURN_S
        auth.refuse_other(item.post.user_id)
        one = plan(item, job_id, default_user, now, exists, check)
        if isinstance(one, list):
            faults += [{"index": index, "pointer": f"/{index}{pointer}", "detail": rule} for pointer, rule in one]
        else:
            one.job.trace = trace
            planned.append(one)
    return planned, faults


def _made_before(key: Key | None) -> Created | None:
    """What an earlier request with the key made: what was right then may be wrong by now, such as its time."""
    return None if key is None else current().writer.replay(key)


def _trace() -> str | None:
    """The trace that the request is part of; what it says wrongly of one is not its caller's business."""
    return read_trace(request.headers.get("traceparent"), request.headers.get("tracestate"))


def _exists(tasks: Tasks, task_ids: set[str]) -> Callable[[str], bool]:
    """Tells registered tasks from others, of these; asks the database at most once."""
    missing = tasks.missing(task_ids)
    return lambda task_id: task_id not in missing


def _listed(item: job_search.Listed) -> dict[str, Any]:
    job, run = item.job, item.execution
    return {
        "job_id": job["job_id"],
        "user_id": job["user_id"],
        "task_id": job["task_id"],
        "status": run["status"],
        "schedule": responses.job_schedule(job),
        "scheduled_at": responses.rfc3339(run["scheduled_at"]),
        "due_at": responses.rfc3339(run["due_at"]),
        "started_at": responses.rfc3339(run["started_at"]),
        "finished_at": responses.rfc3339(run["finished_at"]),
        "attempt": run["attempt"],
        "error": run["error"],
        **_last_run(item.last),
        "next_run_at": responses.rfc3339(job["next_run_at"]),
        "parameters": responses.raw(job["parameters"]),
        "created_at": responses.rfc3339(job["created_at"]),
        "cancelled_at": responses.rfc3339(job["cancelled_at"]),
        "paused_at": responses.rfc3339(job["paused_at"]),
        "problem": job["problem"],
    }


def _last_run(last: LastRun | None) -> dict[str, Any]:
    return {"last_status": last and last.status, "last_run_at": last and responses.rfc3339(last.at)}


def whole_job(job_id: str) -> dict[str, Any]:
    """A job as it is shown alone."""
    users, now = current().users, clock.now_utc()

    def look(connection: Connection) -> tuple[dict[str, Any], Row | None, LastRun | None, list[datetime]]:
        row = jobs.get(connection, job_id)
        if row is None:
            raise problems.not_found("job")
        since = job_search.begins_at(connection, {job_id: row["created_at"]})
        page = job_search.page(connection, Filter(job_id=job_id, start=since), None, 1, now, users)
        run = page.items[0].execution if page.items else None
        planned = row["planned_through"] or (run["scheduled_at"] if run else None)
        last = last_runs.read(connection, {job_id: planned}, since, now).get(job_id)
        # Of one that runs once, its execution says all; these are looked for in every hour ahead.
        return row, run, last, verbs.pending(connection, job_id) if row["expression"] else []

    row, run, last, pending = current().pool.run(look)
    policies = _policies(row)
    return {
        "job_id": job_id,
        "user_id": row["user_id"],
        "task_id": row["task_id"],
        "status": run and run["status"],
        **_last_run(last),
        "schedule": responses.job_schedule(row),
        "next_runs": [responses.rfc3339(at) for at in _coming(row, run, pending, now)],
        "execution": None if run is None else responses.execution(run | {"task_id": row["task_id"]}),
        "parameters": responses.raw(row["parameters"]),
        "max_retries": row["max_retries"],
        "timeout_s": row["timeout_s"],
        "policies": responses.policies(policies) if policies else row["policies"],
        "trace": row["trace"],
        "created_at": responses.rfc3339(row["created_at"]),
        "updated_at": responses.rfc3339(row["updated_at"]),
        "cancelled_at": responses.rfc3339(row["cancelled_at"]),
        "paused_at": responses.rfc3339(row["paused_at"]),
        "paused_note": row["paused_note"],
        "problem": row["problem"],
    }


def _coming(row: dict[str, Any], run: Row | None, pending: list[datetime], now: datetime) -> list[datetime]:
    """The next times of a job; none of one that is paused, broken, cancelled or over."""
    if row["problem"] is not None:
        return []
    if row["expression"] is None:
        waits = run is not None and run["status"] == "PENDING" and row["paused_at"] is None
        return [run["scheduled_at"]] if run is not None and waits else []
    try:
        return [run.at for run in coming(row, pending, SHOWN_RUNS, now)]
    except (ScheduleError, ScheduleErrors):  # put in by hand; `problem` says what is wrong once the planner has seen it
        return []


def _policies(row: dict[str, Any]) -> Policies | None:
    try:
        return Policies.from_dict(row["policies"], row["expression"] is not None)
    except (ScheduleError, ScheduleErrors):  # put in by hand
        return None
