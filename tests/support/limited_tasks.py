"""Tasks with limits, and tasks that end in their own ways, for tests of real workers."""

from __future__ import annotations

import asyncio
from typing import Any

from app.domain.retry import Backoff
from tests.support.tasks import ledgered, note
from workers.context import current, report_progress
from workers.registry import task
from workers.signals import Cancel, Rejected, Retry, Snooze


@task("keyed", concurrency_key="customer.id", max_per_key=3, max_retries=0)
async def keyed(customer: dict[str, Any], seconds: float = 0.005) -> None:
    note("started", key=customer["id"])
    await asyncio.sleep(seconds)
    note("ended", key=customer["id"])


@ledgered("narrow", max_concurrent=2, max_retries=1, backoff=Backoff(base_s=0.2, factor=1))
async def narrow(fail: bool = False) -> None:
    await asyncio.sleep(0.02)
    if fail and current().attempt == 1:
        raise RuntimeError("once")


@ledgered("paced", rate_per_s=20)
async def paced() -> None:
    pass


@task("noop")
async def noop(**parameters: Any) -> None:
    pass


@ledgered("retry_soon", max_retries=1, backoff=Backoff(base_s=60))
async def retry_soon() -> str:
    if current().attempt == 1:
        raise Retry("not yet", after=0.3)
    return "done"


@ledgered("snooze_child", isolation="process", max_retries=0)
def snooze_child(seconds: float) -> None:
    raise Snooze(seconds)


@ledgered("snooze_once", max_retries=0)
def snooze_once(path: str) -> str:
    try:
        with open(path, "x"):
            raise Snooze(0.3)
    except FileExistsError:
        return "awake"


@task("traced")
async def traced() -> dict[str, Any]:
    return {"traceparent": current().traceparent, "trace": current().trace}


@task("traced_thread")
def traced_thread() -> dict[str, Any]:
    return {"traceparent": current().traceparent, "trace": current().trace}


@task("traced_child", isolation="process")
def traced_child() -> dict[str, Any]:
    return {"traceparent": current().traceparent, "trace": current().trace}


@ledgered("give_up", max_retries=3)
async def give_up() -> None:
    raise Cancel("the order is gone")


@ledgered("give_up_child", isolation="process", max_retries=3)
def give_up_child() -> None:
    raise Cancel("the order is gone")


WAYS: dict[str, Any] = {
    "snooze": lambda: Snooze("1"),  # type: ignore[arg-type]
    "reject": lambda: Rejected("no such order"),
    "cancel": lambda: Cancel(ValueError("no such order")),  # type: ignore[arg-type]
    "syntax": lambda: SyntaxError("bad", ("file", 1, "x", "text")),
}


@task("leave_in_a_way", backoff=Backoff(base_s=0.1, factor=1))
async def leave_in_a_way(way: str) -> None:
    raise WAYS[way]()


@task("leave_in_a_way_child", isolation="process", backoff=Backoff(base_s=0.1, factor=1))
def leave_in_a_way_child(way: str) -> None:
    raise WAYS[way]()


@ledgered("measured")
async def measured(path: str) -> None:
    import pathlib

    for step in range(1000):
        report_progress({"step": step})
    report_progress({"step": "last"})
    while not pathlib.Path(path).exists():
        await asyncio.sleep(0.02)


@ledgered("measured_child", isolation="process")
def measured_child(path: str) -> None:
    import pathlib
    import time

    report_progress(0.5)
    while not pathlib.Path(path).exists():
        time.sleep(0.02)
