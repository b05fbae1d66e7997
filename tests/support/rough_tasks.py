"""Tasks that are rough on the process they run in, as code is that was once a program of its own."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from pathlib import Path

from tests.support.tasks import SOON, ledgered
from workers.registry import task


@task("default_timeout")
def default_timeout() -> None:
    socket.setdefaulttimeout(30)


@task("set_environment")
def set_environment(**variables: str) -> None:
    os.environ.clear()
    os.environ.update(variables)


@task("ignore_children")
async def ignore_children() -> None:
    """Runs in the main thread, where signals are everybody's."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@ledgered("fork")
def fork(seconds: float) -> int:
    """Ends at once; what it has forked goes on, with all that its parent had open."""
    pid = os.fork()
    if pid == 0:
        time.sleep(seconds)
        os._exit(0)
    return pid


@task("fork_and_return")
def fork_and_return() -> int:
    """Returns twice, once in what it has forked."""
    return os.fork()


@task("fork_and_exit", isolation="process", max_retries=0)
def fork_and_exit() -> None:
    """Returns in what it has forked alone."""
    if pid := os.fork():
        os.waitpid(pid, 0)
        os._exit(3)


@task("use_up_descriptors", max_retries=0)
def use_up_descriptors(path: str) -> None:
    """Nobody gets one until the file is there; another says that it is so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    saying = os.open(f"{path}.taken", os.O_WRONLY | os.O_CREAT)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    os.write(saying, b"taken")
    os.close(saying)
    try:
        while not Path(path).exists():
            time.sleep(0.02)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@ledgered("kill_parent", isolation="process", backoff=SOON, max_retries=1)
def kill_parent() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


@task("large_text")
async def large_text(characters: int) -> str:
    return "x" * characters


@task("large_text_from_a_child", isolation="process", max_retries=0)
def large_text_from_a_child(characters: int) -> str:
    return "x" * characters
