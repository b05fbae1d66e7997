"""/jobs/{id}/…: what can be done to a job, and when it runs next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from flask import Blueprint, Response
from msgspec import Struct

from app.api import auth, editing, filters, parameters, problems, responses, structs
from app.api.bodies import JSON, read_body
from app.api.coming import coming as coming_runs
from app.api.coming import following
from app.api.idempotency import made_at, read_key
from app.api.jobs import known_id, whole_job
from app.api.problems import Fault, Problem
from app.api.requests import Text
from app.api.scheduling import MOST_RUNS
from app.api.services import current
from app.api.structs import Nothing
from app.clock import clock
from app.domain.job import CRON
from app.schedule import horizon
from app.schedule.cron import parse
from app.schedule.dates import parse_storable
from app.schedule.errors import ScheduleError, ScheduleErrors
from app.schedule.policies import Policies
from app.store import verbs
from app.store.idempotency import once
from app.store.pool import Connection

MOST_BACKFILLED = 1_000
NEW_HISTORY = timedelta(days=7)
"""So far back a backfill makes history where there is none; further back only where there is."""

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
    skipped = _act(lambda c: skip_run(c, known, at, clock.now_utc()))
    return responses.answer({"job_id": known, "execution_id": skipped, "status": "SKIPPED"})


@blueprint.post("/jobs/<job_id>/backfill")
def backfill(job_id: str) -> Response:
    known, asked = known_id(job_id), structs.read(Backfill, empty=True)[0]
    start, end = _instant(asked.start, "start"), _instant(asked.end, "end")
    answer = _act(lambda c: backfill_runs(c, known, start, end, True, clock.now_utc()))
    if not asked.dry_run and answer["occurrences"]:
        current().pool.run(lambda c: verbs.make_history(c, start))
        answer = _act(lambda c: backfill_runs(c, known, start, end, False, clock.now_utc()))
    answer["dry_run"] = asked.dry_run
    return responses.answer({"job_id": known, **answer}, 200 if asked.dry_run else 202)


@blueprint.get("/jobs/<job_id>/next")
def coming(job_id: str) -> Response:
    known = known_id(job_id)
    filters.refuse_unknown("n")
    text = filters.text_of("n") or "10"
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MOST_RUNS):
        raise problems.bad_parameter("n", f"must be a whole number from 1 to {MOST_RUNS}")
    found = _act(lambda c: next_runs(c, known, int(text), clock.now_utc()))
    return responses.answer({"job_id": known, **found})


# ── what the command line does, too ──────────────────────────────────────────────────────────────────────────────────


def skip_run(connection: Connection, job_id: str, at: datetime | None, now: datetime) -> str:
    """Leaves out the coming occurrence at `at`, or the next one; returns its id."""
    row = _recurring(connection, job_id, "cancel it instead")
    policies = Policies.from_dict(row["policies"], recurring=True)
    pending = verbs.pending(connection, job_id)
    if at is None:
        at = pending[0] if pending else next((run.at for run in following(row, 1, now)), None)
    elif at not in pending:
        tick = timedelta(microseconds=1)
        on_grid = horizon.first(
            row["expression"], row["timezone"], policies, at - tick, anchor=row["anchor_at"], runs=row["runs"]
        )
        if at <= now or on_grid != at:
            raise verbs.Refused(422, "scheduled_at", "is no coming occurrence of the job")
    if at is None:
        raise verbs.Refused(409, "job_id", "the job has no occurrence to come")
    return verbs.skip(connection, job_id, at)


def backfill_runs(
    connection: Connection, job_id: str, start: datetime, end: datetime, dry_run: bool, now: datetime
) -> dict[str, Any]:
    """Runs, or only counts, what the schedule would have run from `start` to `end`, both included."""
    if start > end:
        raise verbs.Refused(422, "end", "is before start")
    if end > now:
        raise verbs.Refused(422, "end", "is not past")
    if start < min(now - NEW_HISTORY, verbs.history_begins(connection)):
        raise verbs.Refused(422, "start", "is before the history of executions begins, and more than a week ago")
    row = _recurring(connection, job_id, "run it again instead")
    policies = Policies.from_dict(row["policies"], recurring=True)
    times, total = horizon.between(
        row["expression"], row["timezone"], policies, start, end, anchor=row["anchor_at"], limit=MOST_BACKFILLED
    )
    if total is None:
        raise verbs.Refused(422, "end", "is too far from start for a schedule with so many exclusions between them")
    if total > MOST_BACKFILLED:
        raise verbs.Refused(422, "end", f"{total} runs are more than the {MOST_BACKFILLED} of one backfill")
    made = 0 if dry_run or not times else verbs.backfill(connection, job_id, times)
    shown = [responses.seconds(at) for at in times]
    return {"dry_run": dry_run, "occurrences": total, "made": made, "times": shown}


def next_runs(connection: Connection, job_id: str, n: int, now: datetime) -> dict[str, Any]:
    """The next n runs of a job with local times and notes, and its schedule in plain English."""
    row = verbs.definition(connection, job_id)
    if row is None:
        raise verbs.Refused(404, "job_id", "there is no such job")
    pending = verbs.pending(connection, job_id)
    if row["schedule_type"] != CRON:
        active = row["cancelled_at"] is None and row["paused_at"] is None
        at = pending[0] if pending else row["next_run_at"]
        shown = [at] if at is not None and active else []
        return {
            "description": "once",
            "runs": [{"at": responses.seconds(at), "local": None, "note": None} for at in shown],
        }
    runs = coming_runs(row, pending, n, now)
    description = parse(row["expression"], row["timezone"]).describe()
    return {"description": description, "runs": [responses.run(run) for run in runs]}


def _recurring(connection: Connection, job_id: str, instead: str) -> dict[str, Any]:
    row = verbs.definition(connection, job_id)
    if row is None:
        raise verbs.Refused(404, "job_id", "there is no such job")
    if row["cancelled_at"] is not None:
        raise verbs.Refused(409, "job_id", "the job is cancelled")
    if row["schedule_type"] != CRON:
        raise verbs.Refused(409, "job_id", f"the job runs once; {instead}")
    return row


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
