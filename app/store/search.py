"""Listings of executions, newest or oldest first: each state is asked for a page in index order; pages are merged.

History is walked from the newest hours back in growing windows, so that a page is planned over the few partitions that
fill it. Queries are built once for each combination of filters, then only given values.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from psycopg.rows import dict_row
from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    SmallInteger,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from app.domain.execution import CANCELLED, COMPLETED, FINAL, IN_PROGRESS, PENDING, RETRYING, STATUSES
from app.store.pool import Connection
from app.store.tables import Time, finished_executions, jobs, pending_executions, running_executions, schedules
from app.store.users import Users

FIRST_WINDOW = timedelta(hours=1)
SMALL_WINDOW = timedelta(seconds=15)
GROWTH = 4
BUDGET_S = 0.5
NO_JOB = "00000000-0000-0000-0000-000000000000"

Row = dict[str, Any]


class Position(NamedTuple):
    """A place in a listing: after this execution. Exact to the microsecond; ids break ties."""

    at: datetime
    job_id: str


class Filter(NamedTuple):
    """What to list; None means any. `task` is its id and key; `start` is included, `end` is not, of scheduled_at.

    `error` is a part of the error in lower case; `kind` the schedule_type of the job.
    """

    user_id: str | None = None
    task: tuple[str, int] | None = None
    statuses: frozenset[str] | None = None
    start: datetime | None = None
    end: datetime | None = None
    job_id: str | None = None
    kind: str | None = None
    error: str | None = None
    oldest_first: bool = False


class Statement(NamedTuple):
    """SQL with named places, and the values of those that never change."""

    sql: str
    constants: dict[str, Any]


class Shape(NamedTuple):
    """What a statement is built from: which conditions it has, not their values."""

    user: bool
    users: bool
    task: bool
    start: bool
    end: bool
    job: bool
    jobs: bool
    excluded: bool
    position: bool
    newer: bool
    whole_jobs: bool
    statuses: frozenset[str]
    kind: bool
    error: bool
    oldest_first: bool


_dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]
_NO_INTEGER = cast(null(), Integer)
_NO_TEXT = cast(null(), Text)
_NO_TIME = cast(null(), Time)


class Search:
    """One listing, on one connection, at one time (`now`, the database's)."""

    def __init__(
        self, connection: Connection, wanted: Filter, now: datetime, users: Users, *, whole_jobs: bool = False
    ) -> None:
        """`whole_jobs` lists what stands for a job, too: paused schedules, and jobs cancelled before any execution."""
        self._connection = connection
        self._wanted = wanted._replace(start=_within(wanted.start), end=_within(wanted.end))
        self._now = now
        self._whole_jobs = whole_jobs
        self.stopped: Position | None = None
        # What no index finds is looked for in bites.
        self._longest_window = timedelta(days=1) if wanted.error or wanted.kind else timedelta(days=100_000)
        of_all = wanted.user_id is None and wanted.job_id is None
        self._users = users.few(connection) if of_all else None
        # Of many users together there is no index by time: the less is looked at, the better.
        self._first_window = SMALL_WINDOW if of_all and self._users is None else FIRST_WINDOW

    def page(self, position: Position | None, limit: int, exclude: Sequence[str] = ()) -> list[Row]:
        """Up to `limit` executions after `position`, fewer only at the end; `exclude` are ids of jobs to leave out.

        Rows may move on while we look: what is over is looked at last, and preferred, so each is found once. Where
        little of much matches, the page ends early, and `stopped` is where the next one begins.
        """
        self.stopped = None
        deadline = time.monotonic() + BUDGET_S
        found = {_key(row): row for row in self._active(position, limit, exclude)}
        forward = self._wanted.oldest_first
        windows = self._windows_from(position) if forward else self._windows(self._below(position))
        for low, high in windows:
            found.update({_key(row): row for row in self._finished(position, limit, exclude, low, high)})
            if sum(at < high if forward else at >= low for at, _ in found) >= limit:
                break
            if time.monotonic() > deadline and (low, high) != windows[-1]:
                edge = high if forward else low
                self.stopped = Position(edge, NO_JOB)
                found = {key: row for key, row in found.items() if (key[0] < edge if forward else key[0] >= edge)}
                break
        return [found[key] for key in sorted(found, reverse=not forward)[:limit]]

    def _below(self, position: Position | None) -> datetime | None:
        below = position and (_within(position.at) or position.at) + timedelta(microseconds=1)
        return min(filter(None, (below, self._wanted.end)), default=None)

    def with_newer(self, job_ids: Sequence[str], position: Position) -> set[str]:
        """Those of the jobs that have an execution at or before `position` in the listing: they were there already."""
        if not job_ids:
            return set()
        shape = self._shape(position, newer=True, jobs=True)
        values = self._values(position, len(job_ids), ()) | {"job_ids": list(job_ids)}
        found = {row["job_id"] for row in self._run(active_statement(shape), values)}
        rest = [job_id for job_id in job_ids if job_id not in found]
        if rest and _finished_statuses(shape):
            # Bounds leave out the partitions behind the position.
            low, high = position.at, self._wanted.end or _END
            if self._wanted.oldest_first:
                low, high = self._wanted.start or _BEGINNING, position.at + timedelta(microseconds=1)
            bounds = {"job_ids": rest, "low": low, "high": high}
            found |= {row["job_id"] for row in self._run(finished_statement(shape), values | bounds)}
        return found

    def _active(self, position: Position | None, limit: int, exclude: Sequence[str]) -> list[Row]:
        shape = self._shape(position, excluded=bool(exclude))
        return self._run(active_statement(shape), self._values(position, limit, exclude))

    def _finished(
        self, position: Position | None, limit: int, exclude: Sequence[str], low: datetime, high: datetime
    ) -> list[Row]:
        shape = self._shape(position, excluded=bool(exclude))
        if not _finished_statuses(shape):
            return []
        values = self._values(position, limit, exclude) | {"low": low, "high": high}
        return self._run(finished_statement(shape), values)

    def _windows(self, high: datetime | None) -> list[tuple[datetime, datetime]]:
        """Spans [low, high) to look at in history, newest first, each longer than the one before it."""
        oldest = max(filter(None, (self._oldest(), self._wanted.start)))
        high = high or _END
        windows = []
        length = self._first_window
        low = min(high, self._now) - length
        while high > oldest:
            low = max(low, oldest)
            # A small rest is not worth a query of its own.
            if low - oldest < length:
                low = oldest
            windows.append((low, high))
            length = min(length * GROWTH, self._longest_window)
            high, low = low, low - length
        return windows

    def _windows_from(self, position: Position | None) -> list[tuple[datetime, datetime]]:
        """The same, oldest first."""
        at = position and _within(position.at)
        low = max(filter(None, (self._oldest(), self._wanted.start, at)))
        end = self._wanted.end or _END
        windows = []
        length = self._first_window
        while low < end:
            high = low + length if low + length < self._now else end
            windows.append((low, min(high, end)))
            low, length = high, min(length * GROWTH, self._longest_window)
        return windows

    def _oldest(self) -> datetime:
        row = self._connection.execute(
            "select from_at from pgtick.partition_windows where parent = 'finished_executions'"
        ).fetchone()
        return row[0] if row else _BEGINNING

    def _shape(
        self, position: Position | None, *, newer: bool = False, jobs: bool = False, excluded: bool = False
    ) -> Shape:
        wanted = self._wanted
        return Shape(
            user=wanted.user_id is not None,
            users=self._users is not None and not jobs,
            task=wanted.task is not None,
            start=wanted.start is not None,
            end=wanted.end is not None,
            job=wanted.job_id is not None,
            jobs=jobs,
            excluded=excluded,
            position=position is not None,
            newer=newer,
            whole_jobs=self._whole_jobs,
            # What is completed has no error.
            statuses=(wanted.statuses or frozenset(STATUSES)) - (frozenset() if wanted.error is None else {COMPLETED}),
            kind=wanted.kind is not None,
            error=wanted.error is not None,
            oldest_first=wanted.oldest_first,
        )

    def _values(self, position: Position | None, limit: int, exclude: Sequence[str]) -> dict[str, Any]:
        wanted = self._wanted
        return {
            "user_id": wanted.user_id,
            "users": self._users,
            "task_id": wanted.task and wanted.task[0],
            "task_key": wanted.task and wanted.task[1],
            "start": wanted.start,
            "end": wanted.end,
            "job_id": wanted.job_id,
            "kind": wanted.kind,
            "error": wanted.error,
            "excluded": list(exclude),
            "at": position and position.at,
            "after_id": position and position.job_id,
            "n": limit,
        }

    def _run(self, statement: Statement | None, values: dict[str, Any]) -> list[Row]:
        if statement is None:
            return []
        cursor = self._connection.cursor(row_factory=dict_row)
        # Not prepared: partitions are left out while planning, by these values.
        return cursor.execute(statement.sql, statement.constants | values, prepare=False).fetchall()


_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
_END = datetime(2200, 1, 1, tzinfo=UTC)


def _within(at: datetime | None) -> datetime | None:
    """A bound no further out than any execution can be."""
    return at and min(max(at, _BEGINNING), _END)


def _key(row: Row) -> tuple[datetime, str]:
    return row["scheduled_at"], row["job_id"]


@lru_cache(maxsize=512)
def finished_statement(shape: Shape) -> Statement:
    """A page of history within [low, high)."""
    branches = [_of_users(_finished(shape, statuses), shape) for statuses in _finished_statuses(shape)]
    return _compiled(branches, shape)


@lru_cache(maxsize=512)
def active_statement(shape: Shape) -> Statement | None:
    """A page of what is not over; None when the filters leave no such thing."""
    branches = []
    if shape.statuses & {PENDING, RETRYING}:
        branches.append(_of_users(_pending(shape), shape))
    if IN_PROGRESS in shape.statuses:
        branches.append(_of_users(_running(shape), shape._replace(users=False)))
    if shape.statuses & {PENDING, CANCELLED}:
        branches.append(_of_users(_standing(shape), shape))
    if shape.whole_jobs and CANCELLED in shape.statuses:
        branches.append(_of_users(_cancelled(shape), shape))
    return _compiled(branches, shape) if branches else None


def _finished_statuses(shape: Shape) -> list[tuple[str, ...]]:
    """One branch for each index that serves it: rare endings have one by status, the common one goes by user."""
    wanted = [status for status in FINAL if status in shape.statuses]
    if len(wanted) == len(FINAL):
        return [()]
    return [(status,) for status in wanted]


class _Branch(NamedTuple):
    """A select over one table; `user` is its column to compare."""

    query: Select[Any]
    key: tuple[ColumnElement[Any], ColumnElement[Any]]
    user: ColumnElement[Any]


def _finished(shape: Shape, statuses: tuple[str, ...]) -> _Branch:
    t = finished_executions.c
    query = select(
        t.job_id, t.scheduled_at, t.task_key, t.user_id, t.status, t.attempt, t.due_at, t.started_at, t.finished_at,
        t.worker_id, t.losses, t.error, cast(t.errors, Text).label("errors"), cast(t.result, Text).label("result"),
        t.origin, t.skipped,
    ).where(t.scheduled_at >= bindparam("low", type_=Time), t.scheduled_at < bindparam("high", type_=Time))  # fmt: skip
    for status in statuses:
        query = query.where(t.status == literal_column(f"'{status}'"))
    inside = shape._replace(start=False, end=False)  # the window sees to them
    return _Branch(_filtered(query, inside, t, t.scheduled_at, t.error), (t.scheduled_at, t.job_id), t.user_id)


def _pending(shape: Shape) -> _Branch:
    t = pending_executions.c
    status = case((t.attempt == 0, literal_column(f"'{PENDING}'")), else_=literal_column(f"'{RETRYING}'"))
    query = select(
        t.job_id, t.scheduled_at, t.task_key, t.user_id, status.label("status"), t.attempt, t.due_at,
        _NO_TIME.label("started_at"), _NO_TIME.label("finished_at"), _NO_INTEGER.label("worker_id"), t.losses,
        t.errors[-1]["error"].astext.label("error"), cast(t.errors, Text).label("errors"), _NO_TEXT.label("result"),
        t.origin, _NO_INTEGER.label("skipped"),
    )  # fmt: skip
    if RETRYING not in shape.statuses:
        query = query.where(t.attempt == 0)
    if PENDING not in shape.statuses:
        query = query.where(t.attempt > 0)
    if shape.start:
        # Nothing is due before it is scheduled: leaves out earlier partitions.
        query = query.where(t.due_at >= bindparam("start", type_=Time))
    filtered = _filtered(query, shape, t, t.scheduled_at, t.errors[-1]["error"].astext)
    return _Branch(filtered, (t.scheduled_at, t.job_id), t.user_id)


def _running(shape: Shape) -> _Branch:
    t = running_executions.c
    query = select(
        t.job_id, t.scheduled_at, t.task_key, t.user_id, literal_column(f"'{IN_PROGRESS}'").label("status"), t.attempt,
        t.due_at, func.greatest(t.due_at, t.claimed_at).label("started_at"), _NO_TIME.label("finished_at"), t.worker_id,
        t.losses, t.errors[-1]["error"].astext.label("error"), cast(t.errors, Text).label("errors"),
        _NO_TEXT.label("result"), t.origin, _NO_INTEGER.label("skipped"),
    )  # fmt: skip
    filtered = _filtered(query, shape, t, t.scheduled_at, t.errors[-1]["error"].astext)
    return _Branch(filtered, (t.scheduled_at, t.job_id), t.user_id)


def _standing(shape: Shape) -> _Branch:
    """The next occurrence that stands in schedules; single runs may stand there cancelled or paused."""
    t = schedules.c
    status = case((t.cancelled_at.is_(None), literal_column(f"'{PENDING}'")), else_=literal_column(f"'{CANCELLED}'"))
    query = select(
        t.job_id, t.next_run_at.label("scheduled_at"), t.task_key, t.user_id, status.label("status"),
        cast(literal(0), SmallInteger).label("attempt"), t.next_run_at.label("due_at"), _NO_TIME.label("started_at"),
        t.cancelled_at.label("finished_at"), _NO_INTEGER.label("worker_id"),
        cast(literal(0), SmallInteger).label("losses"), t.problem.label("error"), _NO_TEXT.label("errors"),
        _NO_TEXT.label("result"), _NO_TEXT.label("origin"), _NO_INTEGER.label("skipped"),
    ).where(t.next_run_at.is_not(None))  # fmt: skip
    if CANCELLED not in shape.statuses:
        query = query.where(t.cancelled_at.is_(None))
    if PENDING not in shape.statuses:
        query = query.where(t.cancelled_at.is_not(None))
    if not shape.whole_jobs:
        query = query.where(or_(t.expression.is_(None), and_(t.paused_at.is_(None), t.problem.is_(None))))
    return _Branch(_filtered(query, shape, t, t.next_run_at, t.problem), (t.next_run_at, t.job_id), t.user_id)


def _cancelled(shape: Shape) -> _Branch:
    """Recurring jobs that were cancelled, at their cancellation."""
    t = jobs.c
    query = select(
        t.job_id, t.cancelled_at.label("scheduled_at"), _NO_INTEGER.label("task_key"), t.user_id,
        literal_column(f"'{CANCELLED}'").label("status"), cast(literal(0), SmallInteger).label("attempt"),
        t.cancelled_at.label("due_at"), _NO_TIME.label("started_at"), t.cancelled_at.label("finished_at"),
        _NO_INTEGER.label("worker_id"), cast(literal(0), SmallInteger).label("losses"), _NO_TEXT.label("error"),
        _NO_TEXT.label("errors"), _NO_TEXT.label("result"), _NO_TEXT.label("origin"), _NO_INTEGER.label("skipped"),
    ).where(t.cancelled_at.is_not(None), t.expression.is_not(None))  # fmt: skip
    filtered = _filtered(query, shape, t, t.cancelled_at, _NO_TEXT, by_task_id=True)
    return _Branch(filtered, (t.cancelled_at, t.job_id), t.user_id)


def _filtered(
    query: Select[Any],
    shape: Shape,
    t: Any,
    at: ColumnElement[Any],
    error: ColumnElement[Any],
    *,
    by_task_id: bool = False,
) -> Select[Any]:
    if shape.error:
        query = query.where(func.strpos(func.lower(error), bindparam("error", type_=Text)) > 0)
    if shape.kind:
        of_kind = jobs.c.schedule_type == bindparam("kind", type_=Text)
        by_job = select(literal(1)).where(jobs.c.job_id == t.job_id, of_kind)
        query = query.where(of_kind if t is jobs.c else exists(by_job))
    if shape.user:
        query = query.where(t.user_id == bindparam("user_id", type_=Text))
    if shape.task and by_task_id:
        query = query.where(t.task_id == bindparam("task_id", type_=Text))
    elif shape.task:
        query = query.where(t.task_key == bindparam("task_key", type_=Integer))
    if shape.start:
        query = query.where(at >= bindparam("start", type_=Time))
    if shape.end:
        query = query.where(at < bindparam("end", type_=Time))
    if shape.job:
        query = query.where(t.job_id == bindparam("job_id", type_=t.job_id.type))
    if shape.jobs:
        query = query.where(t.job_id == func.any(bindparam("job_ids", type_=ARRAY(t.job_id.type))))
    if shape.excluded:
        query = query.where(t.job_id != func.all(bindparam("excluded", type_=ARRAY(t.job_id.type))))
    if shape.position:
        here = tuple_(at, t.job_id)
        place = tuple_(bindparam("at", type_=Time), bindparam("after_id", type_=t.job_id.type))
        if shape.oldest_first:
            query = query.where(here <= place) if shape.newer else query.where(here > place)
        else:
            query = query.where(here >= place) if shape.newer else query.where(here < place)
    return query


def _sorted(column: ColumnElement[Any], shape: Shape) -> ColumnElement[Any]:
    return column.asc() if shape.oldest_first else column.desc()


def _of_users(branch: _Branch, shape: Shape) -> Select[Any]:
    """The first n of a branch. Without a user to filter by, of each user in turn, as the indexes go by user."""
    newest = [_sorted(column, shape) for column in branch.key]
    n: Any = bindparam("n", type_=Integer)
    if not shape.users:
        return branch.query.order_by(*newest).limit(n)
    users = func.unnest(bindparam("users", type_=ARRAY(Text))).table_valued("user_id").render_derived(name="u")
    of_one = branch.query.where(branch.user == users.c.user_id).order_by(*newest).limit(n).lateral()
    return (
        select(of_one)
        .select_from(users.join(of_one, true()))
        .order_by(_sorted(of_one.c.scheduled_at, shape), _sorted(of_one.c.job_id, shape))
        .limit(n)
    )


def _compiled(branches: Sequence[Select[Any]], shape: Shape) -> Statement:
    merged = union_all(*[select(branch.subquery()) for branch in branches]).subquery()
    rows = merged.c
    statement = select(
        cast(rows.job_id, Text).label("job_id"),
        *[rows[name] for name in rows.keys() if name != "job_id"],  # noqa: SIM118
    )
    if not shape.newer:
        newest = _sorted(rows.scheduled_at, shape), _sorted(rows.job_id, shape)
        statement = statement.order_by(*newest).limit(bindparam("n", type_=Integer))
    compiled = statement.compile(dialect=_dialect)
    return Statement(str(compiled), dict(compiled.params))
