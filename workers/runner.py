"""Runs claimed executions: each starts at its exact time, in its pool, and ends in one outcome for the reporter."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from app.clock import Clock
from app.settings import Settings
from workers import isolation
from workers.context import Context, enter
from workers.execution import (
    Completed,
    Ended,
    Execution,
    Failed,
    Outcome,
    Released,
    Unreadable,
    encode_result,
    failure,
)
from workers.slots import Slots

PRECISION_S = 0.001
"""Resolution of the event loop's timers."""


class Runner:
    """Holds the executions of this worker from claim to outcome."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        slots: list[Slots],
        report: Callable[[Execution, Outcome], None],
        on_free: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._places = {places.pool: places for places in slots}
        self._report = report
        self._on_free = on_free
        self._waiting: list[Execution] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[Execution] = set()
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="task")
        self._children = asyncio.Semaphore(settings.processes)
        self.claims: dict[int, Execution] = {}
        """Every claim this worker holds until its report is stored: what the lease keeper renews."""

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def busy(self) -> bool:
        return bool(self._running or self._waiting)

    # ── from claim to start ──────────────────────────────────────────────────────────────────────────────────────────

    def take(self, executions: list[Execution]) -> None:
        """Takes claimed executions in; they start when they are due."""
        for execution in executions:
            self.claims[execution.claim_id] = execution
            self._places[execution.task.pool].taken += 1
            heapq.heappush(self._waiting, execution)
        self._start_due()

    def _start_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        while self._waiting and self._waiting[0].due_at <= now:
            self._start(heapq.heappop(self._waiting))
        if self._waiting:
            pause = max(PRECISION_S, self._waiting[0].due_at - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(pause, self._start_due)

    def _start(self, execution: Execution) -> None:
        task = asyncio.get_running_loop().create_task(self._run(execution))
        execution.asyncio_task = task
        self._running.add(execution)

    # ── one execution, in a straight line ────────────────────────────────────────────────────────────────────────────

    async def _run(self, execution: Execution) -> None:
        outcome: Outcome
        try:
            outcome = self._refusal(execution) or await self._attempt(execution)
        except asyncio.CancelledError:
            outcome = self._stopped(execution)
        self._running.discard(execution)
        self._places[execution.task.pool].taken -= 1
        if not execution.lost:
            self._report(execution, outcome)
        self._on_free()

    def _refusal(self, execution: Execution) -> Outcome | None:
        if execution.cancel_requested:
            return Ended("CANCELLED", "cancelled before it started", charged=False)
        if execution.expires_at is not None and execution.expires_at < self._clock.now():
            return Ended("SKIPPED", "not started by its deadline (expires_after_s)", charged=False)
        return None

    async def _attempt(self, execution: Execution) -> Outcome:
        execution.started_at = self._clock.now()
        try:
            parameters = execution.decode_parameters()
            execution.context = context = self._context(execution)
            if execution.suspect or execution.task.pool == "process":
                async with self._children:
                    return await isolation.run(execution, context, parameters, self._settings)
            if execution.task.pool == "thread":
                return await self._within_timeout(execution, self._in_thread(execution, context, parameters))
            enter(context)
            return await self._within_timeout(execution, execution.task.function(**parameters))
        except Unreadable as error:
            return Failed(str(error), final=True)
        except Exception as error:
            return failure(error)

    async def _within_timeout(self, execution: Execution, work: Any) -> Outcome:
        if execution.timeout is None:
            return Completed(encode_result(await work))
        try:
            async with asyncio.timeout(execution.timeout) as limit:
                return Completed(encode_result(await work))
        except TimeoutError:
            if not limit.expired():
                raise
            if execution.context is not None:
                execution.context.cancelled.set()
            return Failed(f"timed out after {execution.timeout:g} s")

    async def _in_thread(self, execution: Execution, context: Context, parameters: dict[str, Any]) -> Any:
        def call() -> Any:
            enter(context)
            return execution.task.function(**parameters)

        return await asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, call)

    def _context(self, execution: Execution) -> Context:
        started = execution.started_at or self._clock.now()
        return Context(
            execution_id=execution.execution_id,
            job_id=str(execution.job_id),
            task_id=execution.task.task_id,
            user_id=execution.user_id,
            attempt=execution.attempt,
            scheduled_at=execution.scheduled_us / 1_000_000,
            deadline=None if execution.timeout is None else started + execution.timeout,
        )

    def _stopped(self, execution: Execution) -> Outcome:
        if execution.context is not None:
            execution.context.cancelled.set()
        if execution.cancel_requested:
            return Ended("CANCELLED", "cancelled while running")
        return Released()

    # ── stopping executions from outside ─────────────────────────────────────────────────────────────────────────────

    def cancel(self, claim_ids: list[int]) -> None:
        """Stops these executions if they are here: their cancellation was asked for."""
        for claim_id in claim_ids:
            execution = self.claims.get(claim_id)
            if execution is not None and not execution.reported:
                execution.cancel_requested = True
                self._interrupt(execution)

    def lose(self, claim_ids: list[int]) -> None:
        """These claims are no longer ours: their executions are stopped if they can be, and not reported."""
        for claim_id in claim_ids:
            execution = self.claims.pop(claim_id, None)
            if execution is not None:
                execution.lost = True
                self._interrupt(execution)

    def _interrupt(self, execution: Execution) -> None:
        if execution.context is not None:
            execution.context.cancelled.set()
        if execution.asyncio_task is not None:
            execution.asyncio_task.cancel()

    def release_waiting(self) -> None:
        """Hands back what has not started."""
        waiting, self._waiting = self._waiting, []
        for execution in waiting:
            self._places[execution.task.pool].taken -= 1
            self._report(execution, Released())

    def release_running(self) -> None:
        """Stops what runs and hands it back; a thread that does not listen goes on until the process ends."""
        for execution in list(self._running):
            self._interrupt(execution)
