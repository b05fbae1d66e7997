"""A worker does not do without a lease keeper, whatever becomes of one."""

from __future__ import annotations

import asyncio
import errno
import json
import sys
import time
from typing import Any

import pytest

from app.clock import Clock
from app.settings import Settings
from workers.leases import Leases

start = asyncio.create_subprocess_exec
REPORT = {"drain": False, "standing": [], "cancelled": [], "revoked": [], "sent": 0.0, "clock": [1.8e9, 0.0, 0.0]}


def keeper(says: str, then: str) -> Any:
    """A process that says something, and then does something, in place of a lease keeper."""
    program = f"import os, signal, sys; sys.stdout.write({says!r}); sys.stdout.flush(); {then}"
    return start(sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)


def test_one_that_could_not_be_started_or_died_in_the_middle_of_a_report_has_a_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = 0

    async def start_one(*_: Any, **__: Any) -> asyncio.subprocess.Process:
        nonlocal starts
        starts += 1
        if starts == 1:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        if starts == 2:
            return await keeper('{"sent": 1', "os.kill(os.getpid(), signal.SIGKILL)")
        return await keeper(json.dumps(REPORT) + "\n", "sys.stdin.read()")

    async def keep() -> None:
        def ignore(_: Any = None) -> None: ...

        leases = Leases(Settings(), Clock(), {}, lambda: {"state": "RUNNING"}, ignore, ignore, ignore, ignore)
        keeping = asyncio.create_task(leases.run())
        async with asyncio.timeout(20):
            await leases.kept.wait()
        assert time.monotonic() - leases.beat < 5
        await leases.stop()
        await keeping

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_one)
    asyncio.run(keep())
    assert starts == 3
