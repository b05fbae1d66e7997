"""Stores outcomes in batches, and does not give up until the database has taken them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from app.clock import Clock
from app.events import emit
from app.settings import Settings
from app.store import channel, queries
from workers.delivery import Delivery, portion
from workers.execution import Execution, Failed, Outcome, Released, Report
from workers.loop import Link
from workers.stats import Stats
from workers.transitions import transitions

STATS_PAUSE_S = 10.0
MOST_WAITING = 10_000
"""Outcomes in memory: a server that writes slower than workers run must not fill it."""
PROGRESS_PAUSE_S = 1.0
"""How often what executions say of their progress is stored."""


class Reporter:
    """Takes outcomes in at any time, and has them written when they are many or a moment old."""

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
            batch = portion(self._queue[: self._settings.report_batch])
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
        stood: set[int] = set()
        connection = await self._link.connection()
        for statement, columns in transitions(batch, self._worker_id):
            cursor = connection.cursor(binary=True)
            await cursor.execute(statement, columns)
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
