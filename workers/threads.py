"""Threads for plain functions. One that does not end when it should is given up, and another takes its place."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from workers.execution import Unstartable


class Stop(BaseException):
    """Raised in a plain function whose time is up. It is no Exception, so that `except Exception` lets it pass."""


class Call:
    """One function running in a thread; `done` tells its result as (result, error)."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self.done: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        self.interrupted = False

    def interrupt(self) -> None:
        """Raises Stop in the thread, at its next step in Python; nothing stops it while it is in C."""
        with self._lock:
            if self._thread_id is not None and not self.interrupted:
                self.interrupted = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread_id), ctypes.py_object(Stop))

    def run(self) -> tuple[Any, BaseException | None]:
        """Runs the function; meant for the thread."""
        result: Any = None
        error: BaseException | None = None
        try:
            try:
                with self._lock:
                    self._thread_id = threading.get_ident()
                result = self._function()
            except BaseException as raised:
                error = raised
            finally:
                with self._lock:
                    self._thread_id = None  # from here on nothing is raised in this thread
        except Stop as stop:  # it came between two lines of ours
            error = error or stop
        return result, error

    def tell(self, outcome: tuple[Any, BaseException | None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._resolve, outcome)

    def _resolve(self, outcome: tuple[Any, BaseException | None]) -> None:
        if not self.done.done():
            self.done.set_result(outcome)


class Threads:
    """As many daemon threads as there were calls at once; a thread that had to be interrupted is not used again."""

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Call]] = deque()
        self._count = 0
        self._pid = os.getpid()

    def start(self, function: Callable[[], Any]) -> Call:
        """Raises Unstartable when the system has no thread left."""
        call = Call(function)
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            self._count += 1
            thread = threading.Thread(target=self._work, args=[inbox], name=f"task-{self._count}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise Unstartable(str(error)) from error
        inbox.put(call)
        return call

    def _work(self, inbox: SimpleQueue[Call]) -> None:
        while True:
            call = inbox.get()
            outcome = call.run()
            if os.getpid() != self._pid:  # the function has forked, and this is what it has forked
                os._exit(0)
            if call.interrupted:
                call.tell(outcome)
                return
            # Idle first: whoever hears of the end may start the next call at once.
            self._idle.append(inbox)
            call.tell(outcome)
            del call, outcome
