"""Gets reports stored although something is wrong with some of them: a row is locked, a value cannot be stored."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import psycopg

from app.events import emit
from app.store import queries
from app.store.connections import is_retryable
from workers.execution import Completed, Execution, Failed, Report, storable
from workers.loop import Link

HELD_PAUSE_S = 1.0
"""Pause between tries to report on rows that somebody else has locked."""
CHARACTERS = 16 * 1024 * 1024
"""Of results written in one statement: PostgreSQL takes no message beyond 1 GiB, and its time is limited."""


def portion(reports: list[Report]) -> list[Report]:
    """The first of these, one at least, whose results are not too much for one statement."""
    characters = 0
    for n, (_, outcome, _) in enumerate(reports):
        if isinstance(outcome, Completed) and outcome.result is not None:
            characters += len(outcome.result)
            if characters > CHARACTERS and n:
                return reports[:n]
    return reports


class Delivery:
    """Hands batches to `write`; what fails there is tried again without the others, which need not wait for it.

    Raises what is wrong with the database itself: then all of the batch is to come again.
    """

    def __init__(
        self, link: Link, claims: dict[int, Execution], write: Callable[[list[Report]], Awaitable[None]]
    ) -> None:
        self._link = link
        self._claims = claims
        self._write = write
        self.held: list[Report] = []
        """On executions whose rows somebody has locked, and is in no hurry."""
        self._held_until = 0.0
        self.in_doubt: set[int] = set()
        """Claims whose report may have been stored, and only the answer got lost."""

    async def deliver(self, batch: list[Report]) -> None:
        if not batch:
            return
        try:
            await self._write(batch)
        except Exception as error:
            self.in_doubt |= {execution.claim_id for execution, _, _ in batch}
            if isinstance(error, psycopg.errors.LockNotAvailable):
                await self._store_around(batch, error)
            elif is_retryable(error):
                raise
            elif len(batch) > 1:
                for report in batch:
                    await self.deliver([report])
            else:
                await self._store_what_can_be(batch[0], error)

    async def deliver_held(self) -> None:
        """Tries those rows again that are free by now, without waiting for the others."""
        if not self.held or time.monotonic() < self._held_until:
            return
        locked = await self._locked(self.held)
        unlocked = [report for report in self.held if report[0].claim_id not in locked]
        free = portion(unlocked)
        self.held = [report for report in self.held if report[0].claim_id in locked] + unlocked[len(free) :]
        self._held_until = time.monotonic() + (HELD_PAUSE_S if free == unlocked else 0)
        try:
            await self.deliver(free)
        except BaseException:
            self.held += free  # what was stored of it will be refused
            raise

    async def _store_around(self, batch: list[Report], error: psycopg.Error) -> None:
        locked = await self._locked(batch)
        if not locked:
            raise error
        await self.deliver([report for report in batch if report[0].claim_id not in locked])
        self.held += [report for report in batch if report[0].claim_id in locked]
        self._held_until = time.monotonic() + HELD_PAUSE_S
        emit("reports_held", executions=len(self.held), claim_ids=sorted(locked)[:5])

    async def _locked(self, batch: list[Report]) -> set[int]:
        connection = await self._link.connection()
        claims = [execution.claim_id for execution, _, _ in batch]
        cursor = await connection.execute(queries.locked_claims, {"claims": claims})
        return {row[0] for row in await cursor.fetchall()}

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
                await self._let_go(queries.drop_claim, execution)
            else:
                was = f"{outcome.error}; " if isinstance(outcome, Failed) else ""
                said = storable(f"{was}the outcome could not be stored: {error}")
                await self._write([(execution, Failed(said, final=True), finished_at)])
        except Exception as again:
            if is_retryable(again):
                raise
            emit("report_given_up", execution_id=execution.execution_id, claim_id=execution.claim_id, error=again)
            await self._let_go(queries.disown, execution)

    async def _let_go(self, statement: str, execution: Execution) -> None:
        connection = await self._link.connection()
        await connection.execute(statement, {"claims": [execution.claim_id]})
        self._claims.pop(execution.claim_id, None)
