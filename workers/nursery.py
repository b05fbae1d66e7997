"""The nursery of `workers.children`: imports the tasks once, then forks a child for each execution it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import inspect
import json
import os
import resource
import selectors
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from app import logs
from app.settings import Settings
from workers.context import Context, enter
from workers.execution import Ended, Failed, NotJson, Snoozed, encode_result, outcome_of
from workers.registry import load

PR_SET_PDEATHSIG = 1
END = signal.SIGUSR1
"""Has a guardian end its child and what that has started."""


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Signals this process when its parent dies, so that a lost execution does not go on unseen (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


# ── the nursery ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Nursery:
    """Has children as lines come in, answers lines that bring none, and ends when its worker does.

    Each child has a guardian for its parent, which says how it ended: whoever kills that kills no other child.
    """

    def __init__(self, line: socket.socket, settings: Settings) -> None:
        self._line = line
        self._settings = settings
        self._guardians: dict[int, socket.socket] = {}
        # A process with several threads must not be forked: its children start from scratch.
        self._fork_only = count_threads() == 1
        self._awake, self._wake = socket.socketpair()
        for each in (self._awake, self._wake):
            each.setblocking(False)

    def run(self) -> None:
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        # A drain lets children end; this ends with its line.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake.fileno())
        gc.freeze()
        self._line.send(b"!")  # up, and heard of within seconds from now on
        with selectors.DefaultSelector() as selector:
            selector.register(self._line, selectors.EVENT_READ)
            selector.register(self._awake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._awake:
                        self._awake.recv(4096)
                    elif not self._conceive():
                        self._end()
                self._reap()

    def _conceive(self) -> bool:
        """Takes in one request; False at the end of the line."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._line, 1, 1)
        except ConnectionResetError:
            return False  # it died without having read our last word
        if not message:
            return False
        if not descriptors:
            self._line.send(message)
            return True
        theirs = socket.socket(fileno=descriptors[0])
        theirs.setblocking(True)  # a task may have set another default in the worker
        os.set_inheritable(theirs.fileno(), False)
        nursery = os.getpid()
        pid = fork(theirs)
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for each in (*self._guardians.values(), self._line, self._awake, self._wake):
                each.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._guard(theirs, nursery)
        if pid is not None:
            self._guardians[pid] = theirs
        return True

    def _guard(self, theirs: socket.socket, nursery: int) -> NoReturn:
        guardian = os.getpid()
        pid = fork(theirs)
        if pid is None:
            os._exit(0)
        if pid:

            def end(*_: object) -> NoReturn:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
                os._exit(1)

            signal.signal(END, end)
            die_with(nursery, END)
            status = os.waitpid(pid, 0)[1]
            tell(theirs, {"status": os.waitstatus_to_exitcode(status)})
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        die_with(guardian)
        if self._fork_only:
            run_child(theirs, self._settings)
        os.set_inheritable(theirs.fileno(), True)
        os.execv(sys.executable, [sys.executable, "-m", "workers.nursery", str(theirs.fileno())])

    def _reap(self) -> None:
        while self._guardians:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            line = self._guardians.pop(pid, None)
            if line is not None:
                if status:  # its child has killed it, and died with it
                    tell(line, {"status": os.waitstatus_to_exitcode(status)})
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)  # also for what the child has left behind
                line.close()

    def _end(self) -> None:
        for pid in self._guardians:
            with contextlib.suppress(OSError):
                os.kill(pid, END)
        os._exit(0)


def fork(line: socket.socket) -> int | None:
    """As os.fork; None when the system has no process left, which the line is told, and closed."""
    try:
        return os.fork()
    except OSError as error:
        with line:
            tell(line, {"unstartable": str(error)})
        return None


def count_threads() -> int:
    """Those of this process, libraries' own included where the system tells."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


# ── a child ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_child(line: socket.socket, settings: Settings) -> NoReturn:
    """Runs the one execution that comes in on the line, answers, and ends this process."""
    pid = os.getpid()
    if not tell(line, {"group": os.getpgrp()}):
        os._exit(0)  # the nursery was stopped, and nobody has waited
    with line.makefile("rb") as incoming:
        request = json.loads(incoming.read())
    answer = answer_to(request, settings, line)
    if os.getpid() == pid:  # and not what the task has forked
        tell(line, answer)
    logs.flush_output()
    os._exit(0)


def tell(line: socket.socket, facts: dict[str, Any]) -> bool:
    """Returns whether anybody listens: the execution may have been given up."""
    try:
        line.sendall(json.dumps(facts).encode() + b"\n")
    except OSError:
        return False
    return True


class Line(dict[int, str]):
    """Passes progress on to the worker."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__()
        self._line = line

    def __setitem__(self, claim_id: int, progress: str) -> None:
        tell(self._line, {"progress": progress})


def answer_to(request: dict[str, Any], settings: Settings, line: socket.socket) -> dict[str, Any]:
    if limit := settings.memory_limit_mb:
        resource.setrlimit(resource.RLIMIT_AS, (limit * 1024 * 1024, limit * 1024 * 1024))
    context = Context(**request["context"], progress=Line(line))
    try:
        function = load(settings.task_modules)[context.task_id].function
        enter(context)
        result = function(**request["parameters"])
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return {"result": encode_result(result)}
    except MemoryError:
        return {"error": f"MemoryError: more than the memory limit of {limit} MiB"}
    except NotJson as error:
        return {"error": str(error), "final": True}
    except BaseException as error:
        outcome = outcome_of(error)
        if isinstance(outcome, Snoozed):
            return {"snoozed": outcome.seconds}
        if isinstance(outcome, Ended):
            return {"cancelled": outcome.reason}
        assert isinstance(outcome, Failed)
        return {
            "error": outcome.error,
            "final": outcome.final,
            "trace": outcome.trace,
            "after_s": outcome.after_s,
        }


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    settings = Settings.from_environment()
    sys.path.insert(0, os.getcwd())  # as in the worker
    if len(sys.argv) == 2:
        logs.set_up(settings)
        run_child(line, settings)
    os.set_inheritable(line.fileno(), False)
    die_with(int(sys.argv[2]))
    logs.set_up(settings)
    load(settings.task_modules)
    Nursery(line, settings).run()


if __name__ == "__main__":
    main()
