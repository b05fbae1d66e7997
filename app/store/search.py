"""Listings of executions, newest or oldest first: each state is asked for a page in index order; pages are merged.

History is walked from the newest hours back in growing windows, so that a page is planned over the few partitions that
fill it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from app.domain.execution import COMPLETED, STATUSES
from app.store import history
from app.store.history import BEGINNING
from app.store.pool import Connection
from app.store.search_statements import Shape, Statement, active_statement, finished_statement
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
        if rest:
            # Bounds leave out the partitions behind the position.
            low, high = position.at, self._wanted.end or _END
            if self._wanted.oldest_first:
                low, high = self._wanted.start or BEGINNING, position.at + timedelta(microseconds=1)
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
        values = self._values(position, limit, exclude) | {"low": low, "high": high}
        return self._run(finished_statement(shape), values)

    def _windows(self, high: datetime | None) -> list[tuple[datetime, datetime]]:
        """Spans [low, high) to look at in history, newest first, each longer than the one before it."""
        oldest = max(filter(None, (history.begins(self._connection), self._wanted.start)))
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
        low = max(filter(None, (history.begins(self._connection), self._wanted.start, at)))
        end = self._wanted.end or _END
        windows = []
        length = self._first_window
        while low < end:
            high = low + length if low + length < self._now else end
            windows.append((low, min(high, end)))
            low, length = high, min(length * GROWTH, self._longest_window)
        return windows

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


_END = datetime(2200, 1, 1, tzinfo=UTC)


def _within(at: datetime | None) -> datetime | None:
    """A bound no further out than any execution can be."""
    return at and min(max(at, BEGINNING), _END)


def _key(row: Row) -> tuple[datetime, str]:
    return row["scheduled_at"], row["job_id"]
