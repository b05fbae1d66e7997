"""Stores outcomes in batches, and does not give up until the database has taken them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg

from app.clock import Clock
from app.domain.retry import DAY_S
from app.events import emit
from app.settings import Settings
from app.store import arrays, channel, queries
from app.store.connections import is_retryable
from workers.execution import Completed, Ended, Execution, Failed, Outcome, Released, Snoozed, storable
from workers.loop import Link
from workers.stats import Stats

STATS_PAUSE_S = 10.0
HELD_PAUSE_S = 1.0
"""Pause between tries to report on rows that somebody else has locked."""

MOST_WAITING = 10_000
"""Outcomes in memory: a server that writes slower than workers run must not fill it."""
PROGRESS_PAUSE_S = 1.0
"""How often what executions say of their progress is stored."""

Report = tuple[Execution, Outcome, float]
"""An execution, how it ended, and when (seconds since the epoch, database clock)."""


def bounded(seconds: float) -> float:
    """A pause before another try: a day at most, which is also what nonsense comes to."""
    return min(seconds, DAY_S) if seconds >= 0 else DAY_S


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
        progress: dict[int, str] | None = None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._link = link
        self._worker_id = worker_id
        self._claims = claims
        self._wake = wake
        self._progress = {} if progress is None else progress
        self._progress_stored_at = 0.0
        self._on_room = on_room
        self._queue: list[Report] = []
        self._held: list[Report] = []
        self._held_until = 0.0
        self._in_doubt: set[int] = set()
        self._awaited: set[Any] = set()
        self.stats = Stats()
        self._stats_stored_at = time.monotonic()

    @property
    def backlog(self) -> int:
        return len(self._queue) + len(self._held)

    @property
    def behind(self) -> bool:
        """Whether so much waits to be written that no more should be begun; what somebody has locked does not count."""
        return len(self._queue) > MOST_WAITING

    def add(self, execution: Execution, outcome: Outcome) -> None:
        """Takes an outcome in; a full batch is written at once."""
        execution.reported = True
        now = self._clock.now()
        self._queue.append((execution, outcome, now))
        self.stats.add(execution, outcome, now)
        if isinstance(outcome, Failed):
            emit(
                "execution_retrying" if self._is_retried(execution, outcome) else "execution_failed",
                execution_id=execution.execution_id,
                task_id=execution.task.task_id,
                attempt=execution.attempt,
                failure=outcome.error,
            )
        if len(self._queue) == self._settings.report_batch or execution.task.limited:
            self._wake()

    async def tick(self) -> float:
        while self._queue:
            batch = self._queue[: self._settings.report_batch]
            await self._store(batch)
            del self._queue[: len(batch)]
        if self._awaited:
            await self._settle()
        if self._held and time.monotonic() >= self._held_until:
            await self._store_held()
        if self._progress and time.monotonic() - self._progress_stored_at > PROGRESS_PAUSE_S:
            await self._store_progress()
        if time.monotonic() - self._stats_stored_at > STATS_PAUSE_S:
            await self.store_stats()
        return self._settings.report_s

    async def _settle(self) -> None:
        """Starts what has waited for these runs to end; jobs in the middle of a change have their turn next time."""
        connection = await self._link.connection()
        cursor = await connection.execute(queries.settle_waiting, {"job_ids": list(self._awaited)})
        self._awaited = set((await cursor.fetchone() or [()])[0])

    async def _store_progress(self) -> None:
        self._progress_stored_at = time.monotonic()
        said = dict(self._progress)
        self._progress.clear()  # what threads say between these lines is lost; the next is not
        connection = await self._link.connection()
        facts = {"claims": list(said), "progress": list(said.values())}
        await connection.execute(queries.store_progress, facts)

    async def store_stats(self) -> None:
        self._stats_stored_at = time.monotonic()
        columns = self.stats.take()
        if columns is not None:
            connection = await self._link.connection()
            await connection.execute(queries.add_stats, {**columns, "worker_id": self._worker_id})

    async def _store(self, batch: list[Report]) -> None:
        if not batch:
            return
        try:
            await self._write(batch)
        except Exception as error:
            # Some of it may have been stored, and only the answer got lost.
            self._in_doubt |= {execution.claim_id for execution, _, _ in batch}
            if isinstance(error, psycopg.errors.LockNotAvailable):
                await self._store_around(batch, error)
                return
            if is_retryable(error):
                raise
            # One outcome that cannot be stored must not hold up the others.
            if len(batch) > 1:
                for report in batch:
                    await self._store([report])
            else:
                await self._store_what_can_be(batch[0], error)

    async def _store_held(self) -> None:
        """Tries those rows again that are free by now, without waiting for the others."""
        locked = await self._locked(self._held)
        free = [report for report in self._held if report[0].claim_id not in locked]
        self._held = [report for report in self._held if report[0].claim_id in locked]
        self._held_until = time.monotonic() + HELD_PAUSE_S
        try:
            await self._store(free)
        except BaseException:
            self._held += free  # what was stored of it will be refused
            raise

    async def _locked(self, batch: list[Report]) -> set[int]:
        connection = await self._link.connection()
        claims = [execution.claim_id for execution, _, _ in batch]
        cursor = await connection.execute(queries.locked_claims, {"claims": claims})
        return {row[0] for row in await cursor.fetchall()}

    async def _store_around(self, batch: list[Report], error: psycopg.Error) -> None:
        """Somebody has locked rows of running executions and is in no hurry: the others are stored."""
        locked = await self._locked(batch)
        if not locked:
            raise error
        await self._store([report for report in batch if report[0].claim_id not in locked])
        self._held += [report for report in batch if report[0].claim_id in locked]
        self._held_until = time.monotonic() + HELD_PAUSE_S
        emit("reports_held", executions=len(self._held), claim_ids=sorted(locked)[:5])

    async def _store_what_can_be(self, report: Report, error: Exception) -> None:
        """The status change at least: without the result or error that the database, or a line of ours, refuses."""
        execution, outcome, finished_at = report
        emit("report_unstorable", execution_id=execution.execution_id, claim_id=execution.claim_id, error=error)
        try:
            if isinstance(error, psycopg.errors.CheckViolation):
                # The hour of history of an execution that waited very long may be gone.
                connection = await self._link.connection()
                await connection.execute("select pgtick.ensure_partitions()")
                await connection.execute(queries.move_claim, {"claim_id": execution.claim_id})
                await self._write([report])
            elif isinstance(error, psycopg.errors.UniqueViolation):
                # A final row is there already, put in by hand: it stands.
                connection = await self._link.connection()
                await connection.execute(queries.drop_claim, {"claim_id": execution.claim_id})
                self._claims.pop(execution.claim_id, None)
            else:
                was = f"{outcome.error}; " if isinstance(outcome, Failed) else ""
                said = storable(f"{was}the outcome could not be stored: {error}")
                await self._write([(execution, Failed(said, final=True), finished_at)])
        except Exception as again:
            if is_retryable(again):
                raise
            emit("report_given_up", execution_id=execution.execution_id, claim_id=execution.claim_id, error=again)
            connection = await self._link.connection()
            await connection.execute(queries.disown, {"claim_id": execution.claim_id})
            self._claims.pop(execution.claim_id, None)

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
                await cursor.execute(statement, arrays.literals(columns))
                rows = await cursor.fetchall()
                stood.update(row[0] for row in rows)
                self._awaited.update(row[1] for row in rows if row[1] is not None)
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
                    in_doubt=execution.claim_id in self._in_doubt,
                )
            self._in_doubt.discard(execution.claim_id)
        if any(execution.task.limited for execution, _, _ in batch):
            self._on_room()
        if handed_back := [execution.due_at for execution, outcome, _ in batch if isinstance(outcome, Released)]:
            # Workers look behind what they have claimed already only now and then.
            await connection.execute("select pgtick.tell(%s, %s)", [channel.DUE, str(int(min(handed_back) * 1e6))])

    def _sort(self, batch: list[Report]) -> tuple[dict[str, list[Any]], ...]:
        """The columns of each kind of outcome, in the order of their claims."""
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
        released: dict[str, list[Any]] = {"claims": [], "due": []}
        for execution, outcome, at in sorted(batch, key=lambda report: report[0].claim_id):
            if isinstance(outcome, Completed):
                completed["claims"].append(execution.claim_id)
                completed["started"].append(execution.started_at)
                completed["finished"].append(at)
                completed["results"].append(outcome.result)
            elif isinstance(outcome, Failed) and self._is_retried(execution, outcome):
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
                released["due"].append(at + bounded(outcome.seconds) if isinstance(outcome, Snoozed) else None)
        return completed, finished, retried, released

    def _is_retried(self, execution: Execution, outcome: Failed) -> bool:
        return not outcome.final and execution.attempt <= execution.max_retries

    def _delay_s(self, execution: Execution, outcome: Failed) -> float:
        backoff = execution.task.backoff
        delay = outcome.after_s if outcome.after_s is not None else backoff.delay_s(execution.attempt)
        return bounded(min(delay, backoff.cap_s))

    def _error(self, execution: Execution, outcome: Failed | Ended, at: float) -> str:
        facts: dict[str, Any] = {
            "attempt": execution.attempt,
            "at": datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"),
            "worker_id": self._worker_id,
            "error": outcome.reason if isinstance(outcome, Ended) else outcome.error,
        }
        if execution.started_at is not None:
            facts["started_at"] = datetime.fromtimestamp(execution.started_at, UTC).isoformat().replace("+00:00", "Z")
        if isinstance(outcome, Failed) and outcome.trace:
            facts["trace"] = outcome.trace
        return json.dumps(facts)
