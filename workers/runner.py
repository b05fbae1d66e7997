"""Runs claimed executions: each starts at its exact time, in its pool, and ends in one outcome for the reporter."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import heapq
import math
import time
from collections.abc import Callable
from typing import Any

from app.clock import Clock
from app.events import emit
from app.settings import Settings
from workers.children import Children
from workers.context import Context, enter
from workers.execution import (
    Completed,
    Ended,
    Execution,
    Failed,
    NotJson,
    Outcome,
    Released,
    Snoozed,
    Unreadable,
    Unstartable,
    encode_result,
    failure,
    outcome_of,
    storable,
)
from workers.slots import Slots
from workers.threads import Threads

PRECISION_S = 0.001
"""Resolution of the event loop's timers."""
UNSTARTABLE_S = 5.0
"""Pause before another try to start what this host, or another, may have something left for by then."""
GIVE_UP_S = 1.0
"""A run that was stopped in every way gets so long to come to its end."""
TOO_LATE = "it could not start in time: its deadline passed, or a newer occurrence came (expires_after_s, missed)"


class Runner:
    """Holds the executions of this worker from claim to outcome."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        pools: list[Slots],
        report: Callable[[Execution, Outcome], None],
        on_free: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._slots = {slots.pool: slots for slots in pools}
        self._report = report
        self._on_free = on_free
        self._waiting: list[Execution] = []
        self._timer: asyncio.TimerHandle | None = None
        self._clock_set_at = clock.set_at
        self._running: set[Execution] = set()
        self._threads = Threads()
        self._children = Children(settings)
        self.abandoned: dict[Execution, str] = {}
        """Runs that did not end when they should: reported as over, and still going on somewhere in this process."""
        self.progress: dict[int, str] = {}
        """What executions said last about how far they are, by claim, until it is stored."""
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
            slots = self._slots[execution.task.pool]
            slots.taken += 1
            slots.waiting += 1
            heapq.heappush(self._waiting, execution)
        self._start_due()

    def _start_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        if self._clock.set_at > self._clock_set_at:
            # Set back, it makes what was about to start wait for hours, in the places of what is due now.
            self._clock_set_at = self._clock.set_at
            self.release_waiting(now + self._settings.claim_ahead_s)
        while self._waiting and self._waiting[0].due_at <= now:
            self._start(heapq.heappop(self._waiting))
        if self._waiting:
            pause = max(PRECISION_S, self._waiting[0].due_at - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(pause, self._start_due)

    def _start(self, execution: Execution) -> None:
        self._slots[execution.task.pool].waiting -= 1
        if execution.leased_until < time.monotonic():
            # This process stood still for long: somebody else has it by now.
            self.lose([execution.claim_id])
        if execution.lost:
            self._end(execution, Released())
            return
        task = asyncio.get_running_loop().create_task(self._run(execution))
        execution.asyncio_task = task
        self._running.add(execution)

    # ── one execution, in a straight line ────────────────────────────────────────────────────────────────────────────

    async def _run(self, execution: Execution) -> None:
        outcome: Outcome = Failed("its run ended, and nothing can be said of how")
        execution.entered = True
        try:
            outcome = self._refusal(execution) or await self._attempt(execution)
        except asyncio.CancelledError:
            outcome = self._stopped(execution)
        except BaseException as error:
            outcome = failure(error)
        finally:
            self._end(execution, outcome)

    def _end(self, execution: Execution, outcome: Outcome) -> None:
        """Frees the slot and reports, once: an abandoned run may still come to its end."""
        if execution.over:
            self.abandoned.pop(execution, None)
            return
        execution.over = True
        self._running.discard(execution)
        slots = self._slots[execution.task.pool]
        slots.taken -= 1
        if not execution.lost:
            self._report(execution, outcome)
        if slots.inviting:
            self._on_free()

    def _abandon(self, execution: Execution, outcome: Outcome) -> None:
        """Gives up a run that does not end although it should: its slot goes to others."""
        if execution.over:
            return
        self.abandoned[execution] = execution.task.task_id
        emit(
            "run_abandoned",
            execution_id=execution.execution_id,
            task_id=execution.task.task_id,
            attempt=execution.attempt,
            abandoned=len(self.abandoned),
        )
        self._end(execution, outcome)

    def _refusal(self, execution: Execution) -> Outcome | None:
        if execution.cancel_requested or execution.revoked:
            return Ended("CANCELLED", "cancelled before it started", charged=False)
        if execution.interrupted:
            return Released()
        # What has started once was in time.
        fresh = execution.attempt == 1 and execution.losses == 0
        if fresh and execution.expires_at is not None and execution.expires_at <= self._clock.now():
            return Ended("SKIPPED", TOO_LATE, charged=False)
        return None

    async def _attempt(self, execution: Execution) -> Outcome:
        try:
            parameters = execution.decode_parameters()
            if execution.task.pool == "process" or (execution.suspect and not execution.task.is_endpoint):
                return await self._in_child(execution, parameters)
            context = self._begin(execution)
            if execution.task.pool == "thread":
                return await self._within_timeout(execution, self._in_thread(execution, context, parameters))
            enter(context)
            return await self._within_timeout(execution, execution.task.function(**parameters))
        except (Unreadable, NotJson) as error:
            return Failed(storable(str(error)), final=True)
        except Unstartable as error:
            emit("run_unstartable", execution_id=execution.execution_id, task_id=execution.task.task_id, error=error)
            return Snoozed(UNSTARTABLE_S)
        except asyncio.CancelledError as error:
            if execution.interrupted:
                raise
            return failure(error)  # its own idea
        except BaseException as error:  # sys.exit() in a task ends the task, not the worker
            return outcome_of(error)

    def _begin(self, execution: Execution) -> Context:
        # A later, looser reading of the clock may show less than the one that let this start.
        execution.started_at = max(self._clock.now(), execution.due_at)
        execution.context = context = self._context(execution)
        return context

    async def _within_timeout(self, execution: Execution, work: Any) -> Outcome:
        if execution.timeout is None:
            return Completed(encode_result(await work))
        timed_out = Failed(f"timed out after {execution.timeout:g} s")
        patience = execution.timeout + self._settings.kill_after_s + GIVE_UP_S
        gave_up = Failed(f"{timed_out.error} and did not end: it was given up, and may still go on")
        giving_up = asyncio.get_running_loop().call_later(patience, self._abandon, execution, gave_up)
        try:
            async with asyncio.timeout(execution.timeout) as limit:
                return Completed(encode_result(await work))
        except TimeoutError:
            if not limit.expired():
                raise
            if execution.context is not None:
                execution.context.cancelled.set()
            return timed_out
        finally:
            giving_up.cancel()

    async def _in_thread(self, execution: Execution, context: Context, parameters: dict[str, Any]) -> Any:
        def work() -> Any:
            enter(context)
            return execution.task.function(**parameters)

        call = self._threads.start(functools.partial(contextvars.copy_context().run, work))
        try:
            result, error = await asyncio.shield(call.done)
        except asyncio.CancelledError:
            # First it is told, then it is made to; if it does not listen, the runner gives it up.
            context.cancelled.set()
            await asyncio.wait([call.done], timeout=self._settings.kill_after_s / 2)
            call.interrupt()
            await asyncio.wait([call.done])
            raise
        if error is not None:
            raise error
        return result

    async def _in_child(self, execution: Execution, parameters: dict[str, Any]) -> Outcome:
        children = self._children
        async with children.processes if execution.task.pool == "process" else children.suspects:
            if refusal := self._refusal(execution):
                return refusal
            return await children.run(execution, self._begin(execution), parameters)

    def _context(self, execution: Execution) -> Context:
        started = execution.started_at or self._clock.now()
        return Context(
            execution.scheduled_us,
            execution.job_id,
            execution.task.task_id,
            execution.user_id,
            execution.attempt,
            None if execution.timeout is None else started + execution.timeout,
            execution.trace,
            execution.claim_id,
            self.progress,
        )

    def _stopped(self, execution: Execution) -> Outcome:
        if execution.context is not None:
            execution.context.cancelled.set()
        if execution.cancel_requested:
            started = execution.started_at is not None
            return Ended(
                "CANCELLED", "cancelled while running" if started else "cancelled before it started", charged=started
            )
        return Released()

    # ── stopping executions from outside ─────────────────────────────────────────────────────────────────────────────

    def cancel(self, claim_ids: list[int]) -> None:
        """Stops these executions if they are here: their cancellation was asked for."""
        for claim_id in claim_ids:
            execution = self.claims.get(claim_id)
            if execution is not None and not execution.over:
                execution.cancel_requested = True
                self._interrupt(execution)

    def revoke(self, claim_ids: list[int]) -> None:
        """These executions are not to start any more; those that run go on."""
        for claim_id in claim_ids:
            execution = self.claims.get(claim_id)
            if execution is not None:
                execution.revoked = True

    def lose(self, claim_ids: list[int]) -> None:
        """These claims are no longer ours: their executions are stopped if they can be, and not reported."""
        for claim_id in claim_ids:
            execution = self.claims.pop(claim_id, None)
            if execution is not None:
                execution.lost = True
                emit("lease_lost", execution_id=execution.execution_id, claim_id=claim_id, attempt=execution.attempt)
                self._interrupt(execution)

    def _interrupt(self, execution: Execution) -> None:
        if execution.over or execution.interrupted:
            return
        if execution.context is not None:
            execution.context.cancelled.set()
        execution.interrupted = True
        if execution.asyncio_task is not None and execution.entered:
            execution.asyncio_task.cancel()
            patience = self._settings.kill_after_s + GIVE_UP_S
            asyncio.get_running_loop().call_later(patience, self._abandon, execution, self._stopped(execution))

    def release_waiting(self, due_after: float = -math.inf) -> None:
        """Hands back what has not started and is due after that time."""
        released = [execution for execution in self._waiting if execution.due_at > due_after]
        self._waiting = [execution for execution in self._waiting if execution.due_at <= due_after]
        heapq.heapify(self._waiting)
        for execution in released:
            self._slots[execution.task.pool].waiting -= 1
            self._end(execution, Released())

    def release_running(self) -> None:
        """Stops what runs and hands it back; a thread that does not listen goes on until the process ends."""
        for execution in list(self._running):
            self._interrupt(execution)
