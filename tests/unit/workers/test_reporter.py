"""More outcomes than the server writes: what waits must not fill the worker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from app.settings import Settings
from tests.support.working import TASK, StillClock
from workers.execution import Completed, Execution
from workers.loop import Link
from workers.process import Worker
from workers.reporter import MOST_WAITING, Reporter

SETTINGS = Settings(database_url="postgresql://nowhere")


def test_nothing_more_is_claimed_while_ten_thousand_outcomes_wait() -> None:
    row: list[Any] = [1, "job", 0.0, 0, 1, 2, 1, 0, False, None, "user", "{}", None, None, None]
    execution, claims = Execution(row, TASK, 0.0), []

    async def claim() -> float:
        claims.append("claimed")
        return 0.0

    async def run() -> None:
        worker: Any = Worker(SETTINGS)
        worker.leases = SimpleNamespace(lapsed=False)
        worker.claimer = SimpleNamespace(tick=claim)
        link = Link("reports", "postgresql://nowhere")
        worker.reporter = Reporter(SETTINGS, StillClock(0.0), link, 1, {}, wake=lambda: None)
        for _ in range(MOST_WAITING):
            worker.reporter.add(execution, Completed())
        assert await worker._claim() == 0.0
        worker.reporter.add(execution, Completed())
        assert await worker._claim() == SETTINGS.report_s, "as soon as they may have been written"
        worker.leases.lapsed = True
        assert await worker._claim() == SETTINGS.poll_s

    asyncio.run(run())
    assert claims == ["claimed"]
