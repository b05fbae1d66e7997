"""Processes that end with us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from app.local import LocalError, say
from app.local.database import CHECKOUT

PR_SET_PDEATHSIG = 1


@dataclass
class Child:
    """A process of ours, in a group of its own, so that Ctrl-C reaches it once: from us."""

    name: str
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, *arguments: str) -> Child:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 (no threads)
        )
        return cls(name, process)

    def check(self) -> None:
        """Raises LocalError if the process has ended."""
        code = self.process.poll()
        if code is not None:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            raise LocalError(f"The {self.name} {how}; its last lines are above.")

    def ask_to_stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def wait_or_kill(self, deadline: float) -> None:
        """Waits until the process has ended, at the latest until `deadline` (monotonic), then kills its group."""
        try:
            self.process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            say(f"The {self.name} does not stop; killing it")
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _end_with_parent() -> None:
    """In a new child on Linux: be asked to stop when the parent dies, even by kill -9."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
