"""/jobs/{id}/…: what can be done to a job, and when it runs next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TypeVar

from flask import Blueprint, Response
from msgspec import Struct

from app.api import auth, editing, filters, occurrences, parameters, problems, responses, structs
from app.api.bodies import JSON, read_body
from app.api.idempotency import made_at, read_key
from app.api.jobs import known_id, whole_job
from app.api.problems import Fault, Problem
from app.api.requests import Text
from app.api.scheduling import MOST_RUNS
from app.api.services import current
from app.api.structs import Nothing
from app.clock import clock
from app.schedule.dates import parse_storable
from app.schedule.errors import ScheduleError, ScheduleErrors
from app.store import history, verbs
from app.store.idempotency import once
from app.store.pool import Connection

R = TypeVar("R")

blueprint = Blueprint("verbs", __name__)


class Pause(Struct, forbid_unknown_fields=True):
    """Why a job is paused; others will see it."""

    note: Text | None = None


class Skip(Struct, forbid_unknown_fields=True):
    """Which coming occurrence to leave out; the next one when it is not said."""

    scheduled_at: str | None = None


class Backfill(Struct, forbid_unknown_fields=True):
    """The span of time to run again, both ends included. `dry_run` only counts."""

    start: str
    end: str
    dry_run: bool = False


@blueprint.patch("/jobs/<job_id>")
def edit(job_id: str) -> Response:
    known = known_id(job_id)
    _, body = read_body(JSON)
    check = partial(parameters.faults, current().tasks)
    changed = _act(lambda c: editing.edit(c, known, body, clock.now_utc(), check))
    if isinstance(changed, list):
        raise problems.invalid(changed)
    return responses.answer(whole_job(known) | {"changed": changed})


@blueprint.post("/jobs/<job_id>/pause")
def pause(job_id: str) -> Response:
    known, asked = known_id(job_id), structs.read(Pause, empty=True)[0]
    taken_back = _act(lambda c: verbs.pause(c, known, asked.note))
    return responses.answer(whole_job(known) | {"taken_back": taken_back})


@blueprint.post("/jobs/<job_id>/resume")
def resume(job_id: str) -> Response:
    known, _ = known_id(job_id), structs.read(Nothing, empty=True)
    resumed = _act(lambda c: verbs.resume(c, known))
    return responses.answer(whole_job(known) | {"changed": resumed})


@blueprint.post("/jobs/<job_id>/run")
def run(job_id: str) -> Response:
    known, _ = known_id(job_id), structs.read(Nothing, empty=True)
    key = read_key(auth.acting_user(), b"{}")
    made, replayed = _act(lambda c: once(c, key, lambda: verbs.run_now(c, known)))
    return responses.answer({"job_id": known, "execution_id": made}, 202, made_at(f"/executions/{made}", replayed))


@blueprint.post("/jobs/<job_id>/skip")
def skip(job_id: str) -> Response:
    known, asked = known_id(job_id), structs.read(Skip, empty=True)[0]
    at = None if asked.scheduled_at is None else _instant(asked.scheduled_at, "scheduled_at")
    try:
        skipped = _act(lambda c: occurrences.skip_run(c, known, at, clock.now_utc()))
    except verbs.Refused as error:  # by the function in SQL, whose argument is `at`
        raise verbs.Refused(error.status, "scheduled_at", error.rule) if error.field == "at" else error from None
    return responses.answer({"job_id": known, "execution_id": skipped, "status": "SKIPPED"})


@blueprint.post("/jobs/<job_id>/backfill")
def backfill(job_id: str) -> Response:
    known, asked = known_id(job_id), structs.read(Backfill, empty=True)[0]
    start, end = _instant(asked.start, "start"), _instant(asked.end, "end")
    answer = _act(lambda c: occurrences.backfill_runs(c, known, start, end, True, clock.now_utc()))
    if not asked.dry_run and answer["occurrences"]:
        current().pool.run(lambda c: history.reach_back(c, start))
        answer = _act(lambda c: occurrences.backfill_runs(c, known, start, end, False, clock.now_utc()))
    answer["dry_run"] = asked.dry_run
    return responses.answer({"job_id": known, **answer}, 200 if asked.dry_run else 202)


@blueprint.get("/jobs/<job_id>/next")
def coming(job_id: str) -> Response:
    known = known_id(job_id)
    filters.refuse_unknown("n")
    text = filters.text_of("n") or "10"
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MOST_RUNS):
        raise problems.bad_parameter("n", f"must be a whole number from 1 to {MOST_RUNS}")
    found = _act(lambda c: occurrences.next_runs(c, known, int(text), clock.now_utc()))
    return responses.answer({"job_id": known, **found})


def _act(work: Callable[[Connection], R]) -> R:
    try:
        return auth.act(work)
    except (ScheduleError, ScheduleErrors) as error:
        raise Problem(409, f"the job's own schedule is broken: {error}") from None


def _instant(text: str, name: str) -> datetime:
    try:
        return parse_storable(text, name)
    except ScheduleError as error:
        raise problems.invalid([Fault(f"/{name}", error.rule)]) from None
