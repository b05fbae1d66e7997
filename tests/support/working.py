"""The parts of a worker, one by one and on a clock of the test's own, against a real database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.clock import Clock
from app.settings import Settings
from app.store.connections import HOT_SETTINGS
from workers.claimer import Claimer
from workers.execution import Execution, Outcome
from workers.janitor import Janitor
from workers.loop import Link
from workers.planner import Planner
from workers.registry import Task
from workers.reporter import Reporter
from workers.slots import Slots


async def noop() -> None: ...


TASK = Task(task_id="noop", function=noop, pool="async")


class StillClock(Clock):
    """Shows the time it was set to."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.time = now

    def now(self) -> float:
        return self.time


class Bench:
    """Claims and reports by hand: `claim()` returns what a worker would have taken, `report()` stores how it ended."""

    def __init__(self, dsn: str, tasks: dict[int, Task], now: float, **settings: Any) -> None:
        self.dsn = dsn
        self.tasks = tasks
        self.clock = StillClock(now)
        self.settings = Settings(database_url=dsn, **settings)
        self.claims: dict[int, Execution] = {}
        self.pause = 0.0
        """Seconds that the last claim wanted to wait for the next."""

    def claim(self, capacity: int = 1000, ticks: int = 1) -> list[Execution]:
        """What one worker takes in so many claims, of `capacity` each; what is due by the database's clock is due."""
        taken: list[Execution] = []
        slots = [Slots("async", capacity, self.tasks)]

        async def tick(link: Link) -> None:
            await self._keep_up(link)
            claimer = Claimer(self.settings, self.clock, link, slots, 1, taken.extend)
            for _ in range(ticks):
                self.pause = await claimer.tick()

        self._with_link(tick)
        self.claims.update({execution.claim_id: execution for execution in taken})
        return taken

    def report(self, *outcomes: tuple[Execution, Outcome]) -> None:
        async def tick(link: Link) -> None:
            reporter = Reporter(self.settings, self.clock, link, 1, self.claims, lambda: None)
            for execution, outcome in outcomes:
                execution.started_at = execution.started_at or self.clock.now()
                reporter.add(execution, outcome)
            await reporter.tick()

        self._with_link(tick)

    def plan(self) -> None:
        """Plans until there is nothing more to plan at this time."""

        async def plan(link: Link) -> None:
            planner = Planner(self.settings, self.clock, link, lambda _: None)
            while await planner.tick() == 0:
                pass

        self._with_link(plan)

    def recover(self) -> None:
        """What a janitor does about claims whose lease is over."""

        async def recover(link: Link) -> None:
            settings = replace(self.settings, renew_s=0.0)  # servers get twice that time after they have come up
            await Janitor(settings, self.clock, link, 1, self.claims, lambda: None).recover()
            await self._keep_up(link)  # they are due from now on

        self._with_link(recover)

    async def _keep_up(self, link: Link) -> None:
        """The clock is not behind the database's: on a busy machine a test takes its time between two statements."""
        row = await (await (await link.connection()).execute("select extract(epoch from now())::float8")).fetchone()
        assert row is not None
        self.clock.time = max(self.clock.time, row[0])

    def _with_link(self, work: Callable[[Link], Any]) -> None:
        async def run() -> None:
            link = Link("test", self.dsn, HOT_SETTINGS)
            try:
                await work(link)
            finally:
                await link.close()

        asyncio.run(run())
