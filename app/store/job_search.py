"""Listing of jobs: each once, at its newest execution that matches, newest first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from app.domain.job import CRON
from app.store import last_runs
from app.store.last_runs import LastRun
from app.store.pool import Connection
from app.store.search import Filter, Position, Row, Search
from app.store.users import Users

BUDGET_S = 1.0
MOST_AT_ONCE = 5_000
_BEFORE_CREATION = timedelta(minutes=1)
"""No execution of a job is so much older than the job, unless it was backfilled."""

_JOBS = """
select j.job_id::text, j.user_id, j.task_id, j.schedule_type, j.expression, j.timezone, j.run_at,
       j.parameters::text as parameters, j.created_at, j.updated_at, j.cancelled_at,
       case when s.paused_at is null and s.problem is null and s.cancelled_at is null then s.next_run_at end
           as next_run_at,
       s.paused_at, s.problem, s.planned_through
from pgtick.jobs j
left join pgtick.schedules s using (job_id)
where j.job_id = any (%s::uuid[])
"""


class Listed(NamedTuple):
    """A job, its newest execution that matches, and its newest run that has ended, whether that matches or not."""

    job: dict[str, Any]
    execution: Row
    last: LastRun | None = None


class Page(NamedTuple):
    items: list[Listed]
    next: Position | None
    """Where the next page begins; None at the end. A page may be short when there was much to pass over."""


def page(
    connection: Connection, wanted: Filter, position: Position | None, limit: int, now: datetime, users: Users
) -> Page:
    """Up to `limit` jobs after `position`.

    A job of several executions that was on an earlier page is left out: it has one there. In a page, the jobs already
    found are left out of further looks, so that one busy schedule does not hide the rest behind its history.
    """
    search = Search(connection, wanted, now, users, whole_jobs=True)
    deadline = time.monotonic() + BUDGET_S
    found: list[Listed] = []
    passed: set[str] = set()
    here, size = position, limit + 1
    while True:
        rows = search.page(here, size, sorted(passed))
        newest: dict[str, Row] = {}
        for row in rows:
            newest.setdefault(row["job_id"], row)
        known = _jobs(connection, list(newest))
        several = [job_id for job_id in newest if job_id in known and _may_have_several(known[job_id])]
        earlier = search.with_newer(several, position) if position else set()
        # Jobs of which only history is left (their partition was dropped) are not listed.
        found += [Listed(known[i], row) for i, row in newest.items() if i in known and i not in earlier]
        passed |= set(several)
        if len(found) > limit:
            return Page(found[:limit], _place(found[limit - 1].execution))
        if search.stopped is not None:
            return Page(found, search.stopped)
        if len(rows) < size:
            return Page(found, None)
        here, size = _place(rows[-1]), min(size * 4, MOST_AT_ONCE)
        if time.monotonic() > deadline:
            return Page(found, here)


def begins_at(connection: Connection, created: Mapping[str, datetime]) -> datetime:
    """Since when jobs, given with when each was created, may have executions: history before need not be looked at."""
    query = (
        "select min((details ->> 'from')::timestamptz) from pgtick.audit_log"
        " where subject = any (%s) and action = 'backfill'"
    )
    row = connection.execute(query, [list(created)]).fetchone()
    backfilled: list[datetime] = [row[0]] if row and row[0] else []
    return min([at - _BEFORE_CREATION for at in created.values()] + backfilled)


def with_last_runs(connection: Connection, items: Sequence[Listed], now: datetime) -> list[Listed]:
    """The same, each with its last run as far as `last_runs` looks back."""
    if not items:
        return []
    since = begins_at(connection, {listed.job["job_id"]: listed.job["created_at"] for listed in items})
    planned = {
        listed.job["job_id"]: listed.job["planned_through"] or listed.execution["scheduled_at"] for listed in items
    }
    found = last_runs.read(connection, planned, since, now)
    return [listed._replace(last=found.get(listed.job["job_id"])) for listed in items]


def _jobs(connection: Connection, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    if not job_ids:
        return {}
    rows = connection.cursor(row_factory=dict_row).execute(_JOBS, [list(job_ids)], prepare=False)
    return {row["job_id"]: row for row in rows}


def _may_have_several(job: dict[str, Any]) -> bool:
    """Whether there may be another execution: one that runs once has it only by hand, which changes the job."""
    return job["schedule_type"] == CRON or job["updated_at"] is not None


def _place(row: Row) -> Position:
    return Position(row["scheduled_at"], row["job_id"])
