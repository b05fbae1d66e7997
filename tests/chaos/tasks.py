"""What the chaos suite runs: every start and every end goes to a ledger outside the database."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from app.domain.retry import Backoff
from workers.context import current
from workers.registry import task

LEDGER = os.open(os.environ.get("CHAOS_LEDGER", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
WORKER = os.environ.get("CHAOS_WORKER", "-")
QUICKLY = Backoff(base_s=0.5, factor=2)


def note(event: str) -> None:
    """`monotonic event task pid attempt worker claim execution`, in one short append."""
    c = current()
    line = f"{time.monotonic():.6f} {event} {c.task_id} {os.getpid()} {c.attempt} {WORKER} {c._claim_id}"
    line += f" {c.execution_id}\n"
    os.write(LEDGER, line.encode())


@task("quick")
async def quick(**parameters: Any) -> None:
    note("start")
    note("end")


@task("slow")
async def slow(seconds: float) -> None:
    note("start")
    await asyncio.sleep(seconds)
    note("end")


@task("thread")
def thread(seconds: float) -> None:
    note("start")
    time.sleep(seconds)
    note("end")


@task("child", isolation="process")
def child(seconds: float) -> None:
    note("start")
    time.sleep(seconds)
    note("end")


@task("recurring")
async def recurring() -> None:
    note("start")
    note("end")


@task("failing", backoff=QUICKLY)
async def failing() -> None:
    note("start")
    raise RuntimeError("on purpose")


@task("flaky", backoff=QUICKLY)
async def flaky() -> None:
    note("start")
    if current().attempt < 3:
        raise RuntimeError("not yet")
    note("end")


@task("poison", backoff=QUICKLY)
async def poison() -> None:
    note("start")
    os.kill(os.getpid(), signal.SIGKILL)
