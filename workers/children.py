"""Runs executions in child processes: what kills one of those harms nobody else.

The children are forked by a nursery, `python -m workers.nursery`, which has imported the tasks already: a child of it
starts in milliseconds. For each run the nursery gets one end of a socket pair; the child reads its request from it and
writes its answer to it, and when it has ended its guardian adds how.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from app.events import emit
from app.settings import Settings
from workers.context import Context
from workers.execution import Completed, Ended, Execution, Failed, Lost, Outcome, Snoozed, Unstartable, storable
from workers.surroundings import surroundings

ANSWER_LIMIT = 64 * 1024 * 1024
PING = b"?"
PING_S = 2.0
"""Pause between questions to the nursery whether it is still there; it answers each."""
HUNG_AFTER_S = 10.0
START_S = 120.0
"""Importing the tasks may take a nursery so long."""
HEAR_OUT_S = 0.1
"""When the time of a run is over, what its child has said by then is read to the end, for so long at most."""


class Children:
    """Runs one execution a child. `processes` or `suspects` is to be held around `run`.

    There may be more suspects: all that a worker was running when it died come back at once, and tasks that only wait
    for something must not wait for each other as well.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.processes = asyncio.Semaphore(settings.processes)
        """For tasks that always run in a process."""
        self.suspects = asyncio.Semaphore(settings.suspects)
        self._nursery: asyncio.subprocess.Process | None = None
        self._line: socket.socket | None = None
        self._watching: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._surroundings = surroundings()

    async def run(self, execution: Execution, context: Context, parameters: dict[str, Any]) -> Outcome:
        """Runs the execution in a child; ends the child when this is cancelled or the timeout passes."""
        request = {"context": context.as_dict(), "parameters": parameters}
        ours = await self._conceive()
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=ANSWER_LIMIT)
        child = Child(reader, self._settings.kill_after_s, context.progressed)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(execution.timeout):
                    await child.run(request, writer)
            if not await child.is_over():
                await child.end()
                return Failed(f"timed out after {execution.timeout:g} s; its process was ended")
        except BaseException:
            await child.end()
            raise
        finally:
            writer.close()
        if child.orphaned and not execution.suspect:
            return Lost()
        return child.outcome()

    async def _conceive(self) -> socket.socket:
        """Has the nursery fork a child; returns our end of the line to it. Raises Unstartable."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    await self._ask(theirs)
                except ConnectionError:
                    # The nursery has died: by the memory limit of the machine, or by somebody's hand.
                    self._close()
                    await self._ask(theirs)
        except OSError as error:
            raise Unstartable(f"no child can be started: {error}") from error
        ours.setblocking(False)
        return ours

    async def _ask(self, theirs: socket.socket) -> None:
        async with self._starting:
            if self._line is None or self._nursery is None or self._nursery.returncode is not None:
                self._close()
                await self._open()
            assert self._line is not None
            socket.send_fds(self._line, [b"\n"], [theirs.fileno()])

    async def _open(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            self._nursery = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "workers.nursery", str(theirs.fileno()), str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                **self._surroundings,
            )
        self._line = ours
        emit("nursery_started", pid=self._nursery.pid)
        self._watching = asyncio.create_task(self._watch(self._nursery, ours))

    def _close(self) -> None:
        """The nursery has died; if it has not, it ends when its line does."""
        if self._watching is not None:
            self._watching.cancel()
        line, self._line = self._line, None
        if line is not None and self._nursery is not None:
            emit("nursery_died", pid=self._nursery.pid, status=self._nursery.returncode)
            line.close()

    async def _watch(self, nursery: asyncio.subprocess.Process, line: socket.socket) -> None:
        """Kills a nursery that hangs, because it was stopped or for whatever reason; the next run has another.

        As with the lease keeper, only time in which this loop came round counts.
        """
        silent_s, limit_s = 0.0, START_S
        while silent_s < limit_s:
            await asyncio.sleep(PING_S)
            silent_s += PING_S
            try:
                line.send(PING)
                answered = line.recv(4096)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not answered:
                return  # it has died
            silent_s, limit_s = 0.0, HUNG_AFTER_S
        emit("nursery_hung", pid=nursery.pid, silent_s=silent_s)
        with contextlib.suppress(ProcessLookupError):
            nursery.kill()


class Child:
    """What comes from one child: {"group": …}, {"result" or "error": …}, and {"status": …} once it has ended.

    Before its answer there may be any number of {"progress": …}.
    """

    def __init__(self, reader: asyncio.StreamReader, kill_after_s: float, tell: Callable[[str], None]) -> None:
        self._reader = reader
        self._kill_after_s = kill_after_s
        self._tell = tell
        self._group: int | None = None
        self._status: int | None = None
        self._answer: dict[str, Any] | None = None
        self._over = False

    async def run(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        """Hands its request to it and listens."""
        with contextlib.suppress(ConnectionError):  # it died before it read; how, is told
            writer.write(json.dumps(request).encode())
            writer.write_eof()
            await writer.drain()
        await self.converse()

    async def converse(self) -> None:
        """Listens until the child has ended; what it has started may go on."""
        with contextlib.suppress(ConnectionError):
            while self._status is None and (line := await self._reader.readline()):
                try:
                    said = json.loads(line)
                except ValueError:
                    continue  # it died in the middle of its answer
                if "group" in said:
                    self._group = said["group"]
                elif "status" in said:
                    self._status = said["status"]
                elif "progress" in said:
                    self._tell(said["progress"])
                else:
                    self._answer = said
        self._over = True

    async def is_over(self) -> bool:
        """Whether it has ended by itself; while a task blocks the worker, word of it waits to be read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEAR_OUT_S):
                await self.converse()
        return self._over

    async def end(self) -> None:
        """Asks the child and what it started to end, then makes them."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._over:
                return
            if self._group is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._group, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._kill_after_s):
                    await self.converse()

    @property
    def orphaned(self) -> bool:
        """Whether its nursery has died, and it died with that."""
        return self._status is None and self._answer is None

    def outcome(self) -> Outcome:
        """Raises Unstartable."""
        if self._status is not None and self._status < 0:
            number = -self._status
            return Failed(f"process died, signal {number} ({signal.Signals(number).name})")
        if self._answer is not None and "unstartable" in self._answer:
            raise Unstartable(f"no child can be started: {self._answer['unstartable']}")
        if self._answer is None:
            how = "with its parent" if self._status is None else f"exit status {self._status}, without an answer"
            return Failed(f"process died, {how}")
        if "error" in self._answer:
            said = self._answer
            final, after_s = said.get("final", False), said.get("after_s")
            return Failed(storable(said["error"]), final=final, trace=said.get("trace"), after_s=after_s)
        if "snoozed" in self._answer:
            return Snoozed(self._answer["snoozed"])
        if "cancelled" in self._answer:
            return Ended("CANCELLED", self._answer["cancelled"])
        return Completed(self._answer["result"])
