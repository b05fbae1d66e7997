"""Tasks for tests of real workers: each writes its start and its end to a ledger outside the database."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.domain.retry import Backoff
from workers.context import current
from workers.registry import task

LEDGER = os.environ.get("PGTICK_TEST_LEDGER", os.devnull)
SOON = Backoff(base_s=0.2, factor=2)
LIBRARY = ctypes.PyDLL(None)
"""C functions that keep the interpreter while they run."""


def note(event: str, **facts: Any) -> None:
    """One line of the ledger; short appends do not mix."""
    context = current()
    entry = {
        "event": event,
        "task_id": context.task_id,
        "execution_id": context.execution_id,
        "attempt": context.attempt,
        "pid": os.getpid(),
        "at": time.monotonic(),
        **facts,
    }
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(descriptor)


@contextmanager
def noted() -> Iterator[None]:
    note("started")
    try:
        yield
    except BaseException as error:
        note("stopped", by=type(error).__name__)
        raise
    note("ended")


def ledgered(task_id: str, **policy: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a task that writes to the ledger."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def asynchronous(**parameters: Any) -> Any:
                with noted():
                    return await function(**parameters)

            return task(task_id, **policy)(asynchronous)

        @functools.wraps(function)
        def plain(**parameters: Any) -> Any:
            with noted():
                return function(**parameters)

        return task(task_id, **policy)(plain)

    return register


@task("quick")
async def quick(**parameters: Any) -> None:
    """Done at once, and not in the ledger."""


@ledgered("nap", backoff=SOON)
async def nap(seconds: float = 0.0) -> None:
    await asyncio.sleep(seconds)


@ledgered("thread_nap", backoff=SOON)
def thread_nap(seconds: float = 0.0) -> None:
    time.sleep(seconds)


@ledgered("child_nap", backoff=SOON, isolation="process")
def child_nap(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


@ledgered("until", backoff=SOON)
async def until(path: str) -> None:
    """Runs until the file is there."""
    while not Path(path).exists():
        await asyncio.sleep(0.02)


@ledgered("once_freed", backoff=SOON)
async def once_freed(path: str) -> None:
    """The first start hangs until the file is there; later ones end at once."""
    first = not Path(path + ".started").exists()
    Path(path + ".started").touch()
    while first and not Path(path).exists():
        await asyncio.sleep(0.02)


@ledgered("failing", backoff=SOON)
async def failing(message: str = "on purpose") -> None:
    raise RuntimeError(message)


@ledgered("failing_for_long", backoff=Backoff(base_s=5, factor=5), max_retries=30)
async def failing_for_long() -> None:
    raise RuntimeError("again")


@ledgered("poison", backoff=SOON)
async def poison() -> None:
    """Kills the process it runs in."""
    os.kill(os.getpid(), signal.SIGKILL)


@ledgered("poison_pool", backoff=SOON)
async def poison_pool(seconds: float = 0.3) -> None:
    """Kills the process it runs in after a while."""
    await asyncio.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


@ledgered("hold_interpreter", max_retries=0)
def hold_interpreter(seconds: float, stretch: float) -> None:
    """Works in C without giving the interpreter free, for `stretch` seconds at a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        LIBRARY.usleep(int(stretch * 1e6))


@ledgered("hold_loop", max_retries=0)
async def hold_loop(seconds: float, stretch: float) -> None:
    """The same on the worker's event loop."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        LIBRARY.usleep(int(stretch * 1e6))
        await asyncio.sleep(0)


@ledgered("deaf_coroutine", max_retries=0)
async def deaf_coroutine(seconds: float = 60.0) -> None:
    """Goes on when it is cancelled."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue


@ledgered("busy_thread", max_retries=0)
def busy_thread(seconds: float = 60.0) -> None:
    """Runs Python all the time: stopped by an exception out of nowhere, if at all."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            sum(range(1000))
        except Exception:
            continue


@ledgered("listening_thread", max_retries=0)
def listening_thread(seconds: float = 60.0) -> str:
    """Looks at its context's flag."""
    return "told to stop" if current().cancelled.wait(seconds) else "done"


@ledgered("deaf_child", isolation="process", max_retries=0)
def deaf_child(seconds: float = 60.0) -> None:
    """Ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.1)


@ledgered("hungry", isolation="process", max_retries=0)
def hungry(mib: int) -> int:
    return len(bytearray(mib * 1024 * 1024))


@ledgered("dying_child", isolation="process", backoff=SOON)
def dying_child(signal_number: int = 0, status: int = 0) -> None:
    if signal_number:
        os.kill(os.getpid(), signal_number)
    os._exit(status)


@task("close_streams", max_retries=0)
def close_streams() -> None:
    """As a function does that was once a program."""
    sys.stdout.close()
    sys.stderr.close()


@task("change_surroundings", max_retries=0)
def change_surroundings() -> None:
    os.environ["PGTICK_TASKS"] = "nowhere.to.be.found"
    os.environ["DATABASE_URL"] = "nonsense"
    os.chdir("/")


@ledgered("leave_behind", isolation="process", max_retries=0)
def leave_behind(seconds: float) -> None:
    """Ends at once; a process that it has started goes on."""
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)


@ledgered("leave", max_retries=0)
async def leave() -> None:
    sys.exit("bye")


@ledgered("leave_thread", max_retries=0)
def leave_thread() -> None:
    sys.exit("bye")


@ledgered("cancel_itself", max_retries=0)
async def cancel_itself() -> None:
    raise asyncio.CancelledError


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@ledgered("raise_unprintable", max_retries=0)
async def raise_unprintable() -> None:
    raise Unprintable


NASTY = {
    "nul": "a\x00b",
    "surrogate": "a\ud800b",
    "both": {"k\x00": ["\udfff"]},
    "fine": "grüße 🎉",
    "escaped": "\\u0000",
}


@ledgered("return_nasty", max_retries=0)
async def return_nasty() -> dict[str, Any]:
    return NASTY


@ledgered("raise_nasty", max_retries=0)
async def raise_nasty() -> None:
    raise RuntimeError("a\x00b \ud800 c")


@ledgered("return_deep", max_retries=3)
async def return_deep(depth: int) -> list[Any]:
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    return deep


@ledgered("return_large")
async def return_large(mib: int) -> str:
    return "x" * (mib * 1024 * 1024)


@ledgered("return_object")
async def return_object() -> object:
    return object()


@ledgered("fail_once_freed", backoff=SOON)
async def fail_once_freed(path: str) -> None:
    while not Path(path).exists():
        await asyncio.sleep(0.02)
    raise RuntimeError("freed")
