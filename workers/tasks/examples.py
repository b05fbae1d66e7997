"""Example tasks, for trying pgtick out: `PGTICK_TASKS=workers.tasks.examples`."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from workers.context import current
from workers.registry import task

logger = logging.getLogger(__name__)


@task("send_email", max_retries=3, timeout=30)
async def send_email(to: str, subject: str = "", body: str = "") -> dict[str, str]:
    """Pretends to send an e-mail."""
    logger.info("e-mail to %s: %s (%s)", to, subject, current().execution_id)
    return {"sent_to": to}


@task("noop")
async def noop(**parameters: Any) -> None:
    """Does nothing, at once."""


@task("sleep")
async def sleep(seconds: float = 1.0) -> None:
    """Takes its time without keeping anybody from work."""
    await asyncio.sleep(seconds)


@task("work")
def work(seconds: float = 1.0) -> None:
    """Takes its time in a thread."""
    time.sleep(seconds)


@task("fail")
async def fail(message: str = "this task always fails") -> None:
    """Fails at every attempt."""
    raise RuntimeError(message)
