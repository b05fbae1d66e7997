"""What does not start although it was claimed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from app.settings import Settings
from tests.support.working import TASK, StillClock
from workers.execution import Completed, Ended, Execution, Outcome, Released
from workers.runner import Runner
from workers.slots import Slots

NOW = 1_800_000_000.0
SETTINGS = Settings(database_url="postgresql://nowhere")


def claimed(due_at: float = NOW, attempt: int = 1, losses: int = 0, expires_at: float | None = None) -> Execution:
    row: list[Any] = [1, "job", due_at, 0, 1, 2, attempt, losses, False, expires_at, "user", "{}", None, None, None]
    return Execution(row, TASK, time.monotonic(), SETTINGS.lease_s)


def ends(execution: Execution, between: Any = lambda runner: None) -> tuple[list[Outcome], list[str]]:
    """How it ended, after `between` was done to its runner, and whether its function was called; its slot is free."""
    outcomes: list[Outcome] = []
    called: list[str] = []

    async def call() -> None:
        called.append("called")

    async def run() -> None:
        execution.task = replace(TASK, function=call)
        slots = Slots("async", 1, {1: execution.task})
        runner = Runner(SETTINGS, StillClock(NOW), [slots], lambda _, outcome: outcomes.append(outcome), lambda: None)
        runner.take([execution])
        between(runner)
        while runner.running:
            await asyncio.sleep(0)
        assert (slots.taken, slots.waiting) == (0, 0)

    asyncio.run(run())
    return outcomes, called


@pytest.mark.parametrize("attempt", [1, 2])
def test_what_was_cancelled_before_its_first_step_does_not_take_it(attempt: int) -> None:
    for stop in (lambda runner: runner.revoke([1]), lambda runner: runner.cancel([1])):
        [outcome], called = ends(claimed(attempt=attempt), stop)
        assert outcome == Ended("CANCELLED", "cancelled before it started", charged=False)
        assert not called


def test_what_was_lost_before_its_first_step_does_not_take_it_and_is_not_reported() -> None:
    assert ends(claimed(), lambda runner: runner.lose([1])) == ([], [])


def test_what_is_past_its_deadline_is_left_out_unless_it_has_started_once() -> None:
    [outcome], called = ends(claimed(expires_at=NOW))
    assert isinstance(outcome, Ended)
    assert (outcome.status, outcome.charged, called) == ("SKIPPED", False, [])
    for again in (claimed(expires_at=NOW, attempt=2), claimed(expires_at=NOW, losses=1), claimed(expires_at=NOW + 1)):
        assert ends(again) == ([Completed()], ["called"])


def test_a_lease_that_ran_out_while_the_process_stood_still_starts_nothing() -> None:
    execution = claimed()
    execution.leased_until = time.monotonic() - 0.001
    assert ends(execution) == ([], [])


def test_what_waits_for_its_time_is_handed_back_when_the_worker_drains() -> None:
    assert ends(claimed(due_at=NOW + 60), lambda runner: runner.release_waiting()) == ([Released()], [])


@pytest.mark.parametrize("step", [-3600, 3600])
def test_what_waits_when_the_clock_of_the_database_is_set_blocks_nothing_and_is_not_lost(step: int) -> None:
    def set_clock(runner: Runner) -> None:
        runner._clock.time += step  # type: ignore[attr-defined]
        runner._clock.set_at = time.monotonic()
        runner.take([])

    ahead = claimed(due_at=NOW + 0.4)
    assert ends(ahead, set_clock) == (([Released()], []) if step < 0 else ([Completed()], ["called"]))
