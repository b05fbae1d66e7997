"""Creating jobs: written together where requests come together, once where they carry a key, then workers are woken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import psycopg

from app.domain.execution import to_microseconds
from app.domain.job import NewJob
from app.errors import UnknownTask
from app.store import idempotency, jobs
from app.store.group_commit import GroupCommit
from app.store.idempotency import Key, KeyConflict
from app.store.notifier import Notifier
from app.store.pool import Connection, Pool, Unavailable
from app.store.tasks import Tasks


class Request(NamedTuple):
    """Jobs that one request wants made, all or none."""

    jobs: Sequence[NewJob]
    key: Key | None


class Created(NamedTuple):
    """The jobs that stand for a request: made at `at` now, or by an earlier request with its key."""

    job_ids: Sequence[str]
    at: datetime
    replayed: bool


Committed = tuple[Sequence[Created | BaseException], datetime | None]
"""An answer for each request, and when the first of their jobs is due; None when workers know it already."""


class Writer:
    """Writes the jobs of a process. Job ids come with the jobs, so a write whose commit went unseen is recognised."""

    def __init__(self, pool: Pool, tasks: Tasks, notifier: Notifier, zone_version: str) -> None:
        self._pool = pool
        self._tasks = tasks
        self._notifier = notifier
        self._zone_version = zone_version
        self._group: GroupCommit[Request, Created] = GroupCommit(self._write)

    def create(self, job: NewJob, key: Key | None) -> Created:
        """Writes one job together with what other requests post at this moment.

        Raises KeyConflict, UnknownTask for a task that was removed meanwhile, and Unavailable.
        """
        return self._group.submit(Request([job], key))

    def create_all(self, new: Sequence[NewJob], key: Key | None) -> Created:
        """Writes many jobs: all or none. Raises as `create` does."""
        answer = self._write([Request(new, key)])[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def replay(self, key: Key) -> Created | None:
        """What an earlier request with the key made, if there was one. Raises KeyConflict."""
        kept = self._pool.run(lambda connection: idempotency.read(connection, [key.name]))
        answer = _replay(Request([], key), kept) if kept else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _write(self, requests: Sequence[Request]) -> Sequence[Created | BaseException]:
        try:
            answers, earliest = self._pool.run(lambda connection: self._commit(connection, requests))
        except psycopg.Error as error:
            if len(requests) == 1:
                return [self._explain(error, requests[0])]
        else:
            if earliest is not None:
                self._notifier.due(to_microseconds(earliest), plan=_any_recurs(requests))
            return answers
        # One of them is at fault: each for itself, so that it fails alone.
        return [self._write_alone(request) for request in requests]

    def _write_alone(self, request: Request) -> Created | BaseException:
        try:
            return self._write([request])[0]
        except Unavailable as error:
            return error

    def _explain(self, error: psycopg.Error, request: Request) -> Created | BaseException:
        if isinstance(error, psycopg.errors.UniqueViolation):
            # An earlier try was committed, but its answer was lost with the connection.
            first = request.jobs[0].job_id
            at = self._pool.run(lambda connection: jobs.created_at(connection, first))
            if at is not None:
                return Created([job.job_id for job in request.jobs], at, replayed=False)
        if isinstance(error, psycopg.errors.NotNullViolation) and error.diag.column_name == "task_key":
            self._tasks.forget()
            missing = self._tasks.missing({job.task_id for job in request.jobs})
            return UnknownTask(min(missing, default=request.jobs[0].task_id))
        return error

    def _commit(self, connection: Connection, requests: Sequence[Request]) -> Committed:
        try:
            return self._commit_once(connection, requests)
        except psycopg.errors.CheckViolation as error:
            # "No partition for this row" shares its SQLSTATE with broken constraints, which have a name.
            if error.diag.constraint_name is not None:
                raise
        connection.execute("select pgtick.ensure_partitions(runway => '4 hours')")
        return self._commit_once(connection, requests)

    def _commit_once(self, connection: Connection, requests: Sequence[Request]) -> Committed:
        keyed = {request.key.name: request for request in reversed(requests) if request.key}
        if not keyed:
            return self._insert(connection, requests)
        earliest = None
        made: dict[int, Created | BaseException] = {}
        with connection.transaction():
            takers = [(request.key, [job.job_id for job in request.jobs]) for request in keyed.values() if request.key]
            free = idempotency.take(connection, takers)
            first = [
                request
                for request in requests
                if request.key is None or (request.key.name in free and keyed[request.key.name] is request)
            ]
            if first:
                answers, earliest = self._insert(connection, first)
                made = dict(zip(map(id, first), answers, strict=True))
        late = [request.key.name for request in requests if request.key and id(request) not in made]
        kept = idempotency.read(connection, late) if late else {}
        return [made.get(id(request)) or _replay(request, kept) for request in requests], earliest

    def _insert(self, connection: Connection, requests: Sequence[Request]) -> Committed:
        new = [job for request in requests for job in request.jobs]
        # Only what is sure to be due now, and few enough to be one statement.
        sure = len(new) < jobs.COPY_FROM and any(job.run_at is None for job in new) and not _any_recurs(requests)
        wake = sure and self._notifier.rides()
        written = jobs.insert(connection, new, self._zone_version, wake=wake)
        answers = [Created([job.job_id for job in request.jobs], written.now, replayed=False) for request in requests]
        return list(answers), None if written.woken else written.earliest


def _any_recurs(requests: Sequence[Request]) -> bool:
    return any(job.expression is not None for request in requests for job in request.jobs)


def _replay(request: Request, kept: dict[idempotency.Name, idempotency.Kept]) -> Created | BaseException:
    assert request.key is not None
    answer = kept.get(request.key.name)
    if answer is None:
        return Unavailable("the key was removed meanwhile")
    if answer.body_hash != request.key.body_hash:
        return KeyConflict(request.key.key)
    return Created(answer.job_ids, answer.created_at, replayed=True)
