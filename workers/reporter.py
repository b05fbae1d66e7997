"""Stores outcomes in batches, and does not give up until the database has taken them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from app.clock import Clock
from app.domain.retry import DAY_S
from app.events import emit
from app.settings import Settings
from app.store import arrays, channel, queries
from workers.delivery import Delivery
from workers.execution import Completed, Ended, Execution, Failed, Outcome, Released, Report, Snoozed
from workers.loop import Link
from workers.stats import Stats

STATS_PAUSE_S = 10.0
MOST_WAITING = 10_000
"""Outcomes in memory: a server that writes slower than workers run must not fill it."""
PROGRESS_PAUSE_S = 1.0
"""How often what executions say of their progress is stored."""


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
        self._delivery = Delivery(link, claims, self._write)
        self._awaited: set[Any] = set()
        self.stats = Stats()
        self._stats_stored_at = time.monotonic()

    @property
    def backlog(self) -> int:
        return len(self._queue) + len(self._delivery.held)

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
                "execution_retrying" if execution.is_retried_after(outcome) else "execution_failed",
                execution_id=execution.execution_id,
                task_id=execution.task.task_id,
                attempt=execution.attempt,
                error=outcome.error,
            )
        if len(self._queue) == self._settings.report_batch or execution.task.limited:
            self._wake()

    async def tick(self) -> float:
        while self._queue:
            batch = self._queue[: self._settings.report_batch]
            await self._delivery.deliver(batch)
            del self._queue[: len(batch)]
        if self._awaited:
            await self._settle_waiting()
        await self._delivery.deliver_held()
        if self._progress and time.monotonic() - self._progress_stored_at > PROGRESS_PAUSE_S:
            await self._store_progress()
        if time.monotonic() - self._stats_stored_at > STATS_PAUSE_S:
            await self.store_stats()
        return self._settings.report_s

    async def _settle_waiting(self) -> None:
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
                    in_doubt=execution.claim_id in self._delivery.in_doubt,
                )
            self._delivery.in_doubt.discard(execution.claim_id)
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
            elif isinstance(outcome, Failed) and execution.is_retried_after(outcome):
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
