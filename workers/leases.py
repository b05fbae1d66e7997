"""The worker's end of its lease keeper: starts the process that renews, and acts on what it reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from app.clock import Clock
from app.events import emit
from app.settings import Settings
from workers.execution import Execution
from workers.lease_keeper import HUNG_AFTER_S
from workers.surroundings import surroundings

STOP_S = 5.0
LINE_LIMIT = 16 * 1024 * 1024
TELL_S = 1.0
START_S = 15.0
"""A keeper that has just been started may take so long to say its first word."""
START_AGAIN_S = 0.5
"""Pause before another try to start one."""
END_S = 1.0
"""To hear of the end of a keeper that says nothing more may take so long."""
CONNECT_S = 4.0
"""To connect to a server that does not answer may take a keeper so long."""
STEPS = 4
BEAT = b"{}\n"
"""Says that the worker's event loop comes round, and nothing new."""


class Leases:
    """Keeps a lease keeper running. What it reports also sets the clock and says which executions are to stop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        claims: dict[int, Execution],
        facts: Callable[[], dict[str, Any]],
        on_lost: Callable[[list[int]], object],
        on_cancel: Callable[[list[int]], object],
        on_revoke: Callable[[list[int]], object],
        on_drain: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._claims = claims
        self._facts = facts
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._on_revoke = on_revoke
        self._on_drain = on_drain
        self._surroundings = surroundings()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._failures = 0
        self._silent_s = 0.0
        self._heard = False
        self._kept_at = float("-inf")
        self.kept = asyncio.Event()
        """Set once the keeper has kept leases: before that, none should be taken."""
        self.beat = time.monotonic()
        self.problem: str | None = None
        self.ended = False

    @property
    def lapsed(self) -> bool:
        """Whether what is claimed now could be lost: leases have not been kept for longer than one lasts."""
        return time.monotonic() - self._kept_at > self._settings.lease_s

    async def run(self) -> None:
        """Until `stop`; a keeper that dies has a successor at once."""
        try:
            while not self._stopping:
                try:
                    status = await self._run_keeper()
                except Exception as error:  # no memory, descriptor or process is left, for a task has them all
                    self._failed(f"no lease keeper can be started: {error}", retryable=False)
                    await asyncio.sleep(START_AGAIN_S)
                    continue
                if not self._stopping:
                    self._process = None
                    emit("lease_keeper_died", status=status)
                    await asyncio.sleep(0.1)
        finally:
            self.ended = not self._stopping

    async def _run_keeper(self) -> int | None:
        """Starts one and acts on what it says until it has ended; returns its exit status, as far as that is known."""
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "workers.lease_keeper", str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
            **self._surroundings,
        )
        beside = [asyncio.create_task(self._tell(process)), asyncio.create_task(self._watch(process))]
        try:
            await self._hear(process)
        finally:
            for each in beside:
                each.cancel()
            if process.returncode is None and not self._stopping:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        with contextlib.suppress(TimeoutError):  # where a task has changed what becomes of SIGCHLD
            async with asyncio.timeout(END_S):
                return await process.wait()
        return None

    async def stop(self) -> None:
        """Has the keeper say the last about this worker, whose state should be STOPPED by now."""
        self._stopping = True
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError, TimeoutError):
            process.stdin.write(self._line())
            process.stdin.close()
            async with asyncio.timeout(STOP_S):
                await process.wait()

    def let_go(self) -> None:
        """Closes our end of the keeper's input here alone, in what a task has forked."""
        if self._process is not None and self._process.stdin is not None:
            transport = self._process.stdin.transport
            line = transport.get_extra_info("socket")
            if line is not None and not transport.is_closing():
                with contextlib.suppress(OSError):
                    os.close(line.fileno())

    def tell(self) -> None:
        """Lets the keeper know at once that the worker's state has changed."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(self._line())

    def _line(self) -> bytes:
        return json.dumps(self._facts()).encode() + b"\n"

    async def _tell(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        said, said_at = b"", float("-inf")
        with contextlib.suppress(OSError):
            while True:
                line = self._line()
                if line != said and time.monotonic() - said_at >= self._settings.renew_s:
                    said, said_at = line, time.monotonic()
                else:
                    line = BEAT
                process.stdin.write(line)
                await process.stdin.drain()
                await asyncio.sleep(TELL_S)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Kills a keeper that hangs, because it was stopped or for whatever reason.

        Only time in which this loop came round counts: a worker that was stopped, or that a task blocks, hears nothing
        for reasons of its own.
        """
        self._silent_s, self._heard = 0.0, False
        limit_s = longest_silence_s(self._settings)
        step_s = limit_s / STEPS
        while self._silent_s < (limit_s if self._heard else max(limit_s, START_S)):
            await asyncio.sleep(step_s)
            self._silent_s += step_s
        emit("lease_keeper_hung", silent_s=round(self._silent_s, 1))
        with contextlib.suppress(ProcessLookupError):
            process.kill()

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while (line := await process.stdout.readline()).endswith(b"\n"):  # it may be killed in the middle of one
            self._silent_s, self._heard = 0.0, True
            report = json.loads(line)
            if "problem" in report:
                self._failed(report["problem"], retryable=report["retryable"])
            else:
                self._act(report)

    def _act(self, report: dict[str, Any]) -> None:
        if self._failures:
            emit("loop_recovered", loop="leases", failures=self._failures)
        self._failures = 0
        self.problem = None
        self.beat = self._kept_at = time.monotonic()
        self.kept.set()
        sent, standing = report["sent"], set(report["standing"])
        self._clock.observe(*report["clock"])
        leased_until = sent + self._settings.lease_s / 2
        lost = []
        for claim_id, execution in list(self._claims.items()):
            if claim_id in standing:
                execution.leased_until = max(execution.leased_until, leased_until)
            elif execution.taken_at < sent and not execution.reported:
                # It was there before the keeper looked. One whose outcome is on its way may just have been stored.
                lost.append(claim_id)
        for claims, act in (
            (lost, self._on_lost),
            (report["cancelled"], self._on_cancel),
            (report["revoked"], self._on_revoke),
        ):
            if claims:
                act(claims)
        if report["drain"]:
            self._on_drain()

    def _failed(self, problem: str, *, retryable: bool) -> None:
        if problem != self.problem:
            emit("database_unavailable" if retryable else "loop_failed", loop="leases", error=problem)
        if retryable:
            self.beat = time.monotonic()
        self.problem = problem
        self._failures += 1


def longest_silence_s(settings: Settings) -> float:
    """How long a keeper that works says nothing: a pause, and a round, which it gives up when it takes too long."""
    return settings.renew_s + max(CONNECT_S, min(HUNG_AFTER_S, settings.lease_s / 3))
