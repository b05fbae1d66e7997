"""/executions: what happened and what is about to, one item per execution; cancelling one, and running one again."""

from __future__ import annotations

from datetime import datetime

from flask import Blueprint, Response

from app.api import auth, filters, pagination, problems, responses, structs
from app.api.idempotency import made_at, read_key
from app.api.problems import Problem
from app.api.services import current
from app.api.structs import Nothing
from app.clock import clock
from app.domain.execution import CANCELLED, FINAL, IN_PROGRESS, ExecutionId
from app.domain.ids import parse_uuid
from app.store import executions, job_search, jobs, verbs
from app.store.idempotency import once
from app.store.pool import Connection
from app.store.search import Position, Row, Search

blueprint = Blueprint("executions", __name__)


@blueprint.get("/executions")
def index() -> Response:
    return _page(None)


@blueprint.get("/jobs/<job_id>/executions")
def of_job(job_id: str) -> Response:
    known = parse_uuid(job_id)
    created_at = known and current().pool.run(lambda c: jobs.created_at(c, known))
    if not known or not created_at:
        raise problems.not_found("job")
    return _page(known, current().pool.run(lambda c: job_search.begins_at(c, {known: created_at})))


@blueprint.get("/executions/<execution_id>")
def show(execution_id: str) -> Response:
    return responses.answer(responses.execution(_row(_known(execution_id))))


@blueprint.post("/executions/<execution_id>/cancel")
def cancel(execution_id: str) -> Response:
    known, _ = _known(execution_id), structs.read(Nothing, empty=True)
    status = auth.act(lambda c: verbs.cancel_execution(c, known))
    if status is None:
        raise problems.not_found("execution")
    if status not in (CANCELLED, IN_PROGRESS):
        raise Problem(409, f"the execution is over: {status}")
    # One that runs is told to stop, and ends when its worker has stopped it.
    return responses.answer(responses.execution(_row(known)), 202 if status == IN_PROGRESS else 200)


@blueprint.post("/executions/<execution_id>/rerun")
def rerun(execution_id: str) -> Response:
    known, _ = _known(execution_id), structs.read(Nothing, empty=True)
    key = read_key(auth.acting_user(), b"{}")
    if (status := _row(known)["status"]) not in FINAL:
        raise Problem(409, f"the execution is not over: {status}")
    made, replayed = auth.act(lambda c: once(c, key, lambda: verbs.rerun(c, known)))
    return responses.answer(responses.execution(_row(_known(made))), 201, made_at(f"/executions/{made}", replayed))


def _known(execution_id: str) -> ExecutionId:
    known = ExecutionId.parse(execution_id)
    if known is None:
        raise problems.not_found("execution")
    return known


def _row(known: ExecutionId) -> Row:
    row = current().pool.run(lambda c: executions.get(c, known))
    if row is None:
        raise problems.not_found("execution")
    return row


def _page(job_id: str | None, since: datetime | None = None) -> Response:
    wanted, position, limit = filters.read_listing(job_id)
    if since is not None:
        wanted = wanted._replace(start=max(since, wanted.start or since))
    users = current().users

    def look(connection: Connection) -> tuple[list[Row], Position | None]:
        search = Search(connection, wanted, clock.now_utc(), users)
        return search.page(position, limit + 1), search.stopped

    found, stopped = current().pool.run(look)
    names = current().tasks.names()
    items = [responses.execution(row | {"task_id": names.get(row["task_key"])}) for row in found[:limit]]
    cursor = None
    if len(found) > limit:
        last = found[limit - 1]
        cursor = pagination.write_cursor(Position(last["scheduled_at"], last["job_id"]))
    elif stopped is not None:
        cursor = pagination.write_cursor(stopped)
    return responses.answer({"executions": items, "next_cursor": cursor}, 200, pagination.link(cursor))
