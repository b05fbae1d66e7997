"""The statements of listings, built once for each combination of filters, then only given values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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

from app.domain.execution import CANCELLED, FINAL, IN_PROGRESS, PENDING, RETRYING
from app.store.tables import Time, finished_executions, jobs, pending_executions, running_executions, schedules


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


@lru_cache(maxsize=512)
def finished_statement(shape: Shape) -> Statement | None:
    """A page of history within [low, high); None when the filters leave no such thing."""
    branches = [_of_users(_finished(shape, statuses), shape) for statuses in _finished_statuses(shape)]
    return _compiled(branches, shape) if branches else None


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
