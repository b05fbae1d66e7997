"""Stores outcomes in batches, and does not give up until the database has taken them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg

from app.clock import Clock
from app.events import emit
from app.settings import Settings
from app.store import queries
from app.store.connections import is_retryable
from workers.execution import Completed, Ended, Execution, Failed, Outcome
from workers.loop import Link
from workers.stats import Stats

STATS_PAUSE_S = 10.0

Report = tuple[Execution, Outcome, float]
"""An execution, how it ended, and when (seconds since the epoch, database clock)."""


class Reporter:
    """Turns outcomes into the four ways out of running_executions: complete, finish, retry, release."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        link: Link,
        worker_id: int,
        claims: dict[int, Execution],
        wake: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._link = link
        self._worker_id = worker_id
        self._claims = claims
        self._wake = wake
        self._queue: list[Report] = []
        self._stats = Stats()
        self._stats_stored_at = time.monotonic()

    @property
    def backlog(self) -> int:
        return len(self._queue)

    def add(self, execution: Execution, outcome: Outcome) -> None:
        """Takes an outcome in; a full batch is written at once."""
        execution.reported = True
        now = self._clock.now()
        self._queue.append((execution, outcome, now))
        self._stats.add(execution, outcome, now)
        if len(self._queue) == self._settings.report_batch:
            self._wake()

    async def tick(self) -> float:
        while self._queue:
            batch = self._queue[: self._settings.report_batch]
            await self._store(batch)
            del self._queue[: len(batch)]
        if time.monotonic() - self._stats_stored_at > STATS_PAUSE_S:
            await self.store_stats()
        return self._settings.report_s

    async def store_stats(self) -> None:
        self._stats_stored_at = time.monotonic()
        columns = self._stats.take()
        if columns is not None:
            connection = await self._link.connection()
            await connection.execute(queries.add_stats, {**columns, "worker_id": self._worker_id})

    async def _store(self, batch: list[Report]) -> None:
        try:
            await self._write(batch)
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            # One outcome that cannot be stored must not hold up the others.
            if len(batch) > 1:
                for report in batch:
                    await self._store([report])
            else:
                await self._store_what_can_be(batch[0], error)

    async def _store_what_can_be(self, report: Report, error: psycopg.Error) -> None:
        """The status change at least: without the result or error that the database refuses."""
        execution, outcome, finished_at = report
        emit("report_unstorable", execution_id=execution.execution_id, claim_id=execution.claim_id, error=error)
        if error.sqlstate == psycopg.errors.CheckViolation.sqlstate:
            # The partition of an execution that waited very long may be gone.
            connection = await self._link.connection()
            since = datetime.fromtimestamp(execution.scheduled_us / 1e6, UTC)
            await connection.execute("select pgtick.ensure_partitions(since => %s)", [since])
            await self._write([report])
            return
        said = f"the outcome could not be stored: {error}"
        await self._write(
            [(execution, Failed(said, final=not isinstance(outcome, Failed) or outcome.final), finished_at)]
        )

    async def _write(self, batch: list[Report]) -> None:
        completed, finished, retried, released = self._sort(batch)
        stood: set[int] = set()
        connection = await self._link.connection()
        for statement, columns in (
            (queries.complete, completed),
            (queries.finish, finished),
            (queries.retry, retried),
            (queries.release, released),
        ):
            if columns["claims"]:
                cursor = connection.cursor(binary=True)
                await cursor.execute(statement, columns)
                stood.update(row[0] for row in await cursor.fetchall())
        for execution, outcome, _ in batch:
            self._claims.pop(execution.claim_id, None)
            if execution.claim_id not in stood:
                # Its lease was over and somebody else has it: what this run did does not count.
                emit(
                    "report_refused",
                    execution_id=execution.execution_id,
                    claim_id=execution.claim_id,
                    attempt=execution.attempt,
                    outcome=type(outcome).__name__,
                )

    def _sort(self, batch: list[Report]) -> tuple[dict[str, list[Any]], ...]:
        completed: dict[str, list[Any]] = {"claims": [], "started": [], "finished": [], "results": []}
        finished: dict[str, list[Any]] = {
            "claims": [],
            "statuses": [],
            "started": [],
            "finished": [],
            "errors": [],
            "charged": [],
        }
        retried: dict[str, list[Any]] = {"claims": [], "due": [], "errors": []}
        released: dict[str, list[Any]] = {"claims": []}
        for execution, outcome, at in batch:
            if isinstance(outcome, Completed):
                completed["claims"].append(execution.claim_id)
                completed["started"].append(execution.started_at)
                completed["finished"].append(at)
                completed["results"].append(outcome.result)
            elif isinstance(outcome, Failed) and not outcome.final and execution.attempt <= execution.max_retries:
                retried["claims"].append(execution.claim_id)
                retried["due"].append(at + self._delay_s(execution, outcome))
                retried["errors"].append(self._error(execution, outcome, at))
            elif isinstance(outcome, Failed | Ended):
                finished["claims"].append(execution.claim_id)
                finished["statuses"].append(outcome.status if isinstance(outcome, Ended) else "FAILED")
                finished["started"].append(execution.started_at)
                finished["finished"].append(at)
                finished["errors"].append(self._error(execution, outcome, at))
                finished["charged"].append(outcome.charged if isinstance(outcome, Ended) else True)
            else:
                released["claims"].append(execution.claim_id)
        return completed, finished, retried, released

    def _delay_s(self, execution: Execution, outcome: Failed) -> float:
        if outcome.after_s is not None:
            return min(outcome.after_s, execution.task.backoff.cap_s)
        return execution.task.backoff.delay_s(execution.attempt)

    def _error(self, execution: Execution, outcome: Failed | Ended, at: float) -> str:
        facts: dict[str, Any] = {
            "attempt": execution.attempt,
            "at": datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"),
            "worker_id": self._worker_id,
            "error": outcome.reason if isinstance(outcome, Ended) else outcome.error,
        }
        if execution.started_at is not None:
            facts["started_at"] = datetime.fromtimestamp(execution.started_at, UTC).isoformat().replace("+00:00", "Z")
        if isinstance(outcome, Failed):
            if outcome.trace:
                facts["trace"] = outcome.trace
            retrying = not outcome.final and execution.attempt <= execution.max_retries
            emit(
                "execution_retrying" if retrying else "execution_failed",
                execution_id=execution.execution_id,
                task_id=execution.task.task_id,
                attempt=execution.attempt,
                failure=outcome.error,
            )
        return json.dumps(facts)
