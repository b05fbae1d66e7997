"""A worker does not do without a lease keeper, whatever becomes of one, and acts on what it says."""

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
from tests.support.working import TASK
from workers.execution import Execution
from workers.leases import Leases

SETTINGS = Settings(database_url="postgresql://nowhere")
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


def claimed(number: int, taken_s_ago: float) -> Execution:
    row: list[Any] = [number, "job", 0.0, 0, 1, 2, 1, 0, False, None, "user", "{}", None, None, None]
    execution = Execution(row, TASK, time.monotonic() - taken_s_ago, SETTINGS.lease_s)
    execution.taken_at -= taken_s_ago
    return execution


def heard(leases: Leases, **word: Any) -> None:
    now = time.monotonic()
    leases._act(REPORT | {"sent": now - 1, "clock": (0.0, now, now)} | word)


@pytest.fixture
def said() -> dict[str, Any]:
    return {}


@pytest.fixture
def claims() -> dict[int, Execution]:
    return {}


@pytest.fixture
def leases(claims: dict[int, Execution], said: dict[str, Any]) -> Leases:
    def keep(name: str) -> Any:
        return lambda *values: said.update({name: values[0] if values else True})

    return Leases(SETTINGS, Clock(), claims, dict, keep("lost"), keep("cancel"), keep("revoke"), keep("drain"))


def test_a_claim_is_lost_only_if_it_was_there_before_the_keeper_looked_and_is_not_being_reported(
    leases: Leases, claims: dict[int, Execution], said: dict[str, Any]
) -> None:
    claims |= {n: claimed(n, ago) for n, ago in ((1, 2.0), (2, 0.5), (3, 2.0), (4, 2.0))}
    claims[3].reported = True
    heard(leases, standing=[4])
    assert said == {"lost": [1]}


def test_what_stands_may_start_for_longer_and_never_for_shorter(leases: Leases, claims: dict[int, Execution]) -> None:
    claims |= {1: claimed(1, 2.0), 2: claimed(2, 2.0)}
    now = time.monotonic()
    claims[1].leased_until, claims[2].leased_until = now - 100.0, now + 100.0
    heard(leases, standing=[1, 2])
    assert claims[1].leased_until == pytest.approx(now + SETTINGS.lease_s / 2 - 1, abs=0.2)
    assert claims[2].leased_until == now + 100.0


def test_what_is_to_stop_not_to_start_or_to_drain_is_passed_on(leases: Leases, said: dict[str, Any]) -> None:
    heard(leases, cancelled=[7], revoked=[8, 9], drain=True)
    assert said == {"cancel": [7], "revoke": [8, 9], "drain": True}


def test_claims_could_be_lost_until_leases_are_kept_and_again_when_they_no_longer_are(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert leases.lapsed
    heard(leases)
    assert not leases.lapsed
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + SETTINGS.lease_s + 1)
    assert leases.lapsed
