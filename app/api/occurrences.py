"""Occurrences of a job, as views and the command line act on them: which come, leaving one out, running past ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from app.api import responses
from app.domain.job import CRON
from app.schedule import horizon
from app.schedule.cron import parse
from app.schedule.horizon import Run
from app.schedule.policies import Policies
from app.schedule.zones import zone
from app.store import history, verbs
from app.store.pool import Connection

MOST_BACKFILLED = 1_000
NEW_HISTORY = timedelta(days=7)
"""So far back a backfill makes history where there is none; further back only where there is."""


def _following(row: Mapping[str, Any], n: int, now: datetime) -> list[Run]:
    """The next n that are not pending yet, by the columns of a job and its schedule. Raises ScheduleError."""
    policies = Policies.from_dict(row["policies"], recurring=True)
    return horizon.upcoming(
        row["expression"],
        row["timezone"],
        policies,
        max(now, row["planned_through"] or now),
        n,
        anchor=row["anchor_at"],
        runs=row["runs"] or 0,
        skips=row["skips"] or (),
    )


def coming(row: Mapping[str, Any], pending: Sequence[datetime], n: int, now: datetime) -> list[Run]:
    """The next n; none when the job is paused, cancelled or no more. `pending` are the times of those made already."""
    if row["anchor_at"] is None or row["paused_at"] is not None or row["cancelled_at"] is not None:
        return []
    policies, where = Policies.from_dict(row["policies"], recurring=True), zone(row["timezone"])
    schedule = horizon.occurrences_of(row["expression"], row["timezone"], policies)
    made = [Run(at, at.astimezone(where), schedule.note(at)) for at in pending[:n]]
    return made + _following(row, n - len(made), now)


def skip_run(connection: Connection, job_id: str, at: datetime | None, now: datetime) -> str:
    """Leaves out the coming occurrence at `at`, or the next one; returns its id."""
    row = _recurring(connection, job_id, "cancel it instead")
    policies = Policies.from_dict(row["policies"], recurring=True)
    pending = verbs.pending(connection, job_id)
    if at is None:
        at = pending[0] if pending else next((run.at for run in _following(row, 1, now)), None)
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
    if start < min(now - NEW_HISTORY, history.begins(connection)):
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
    runs = coming(row, pending, n, now)
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
