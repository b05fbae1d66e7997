"""What a running task can learn about its execution: `current().attempt`."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

_current: ContextVar[Context] = ContextVar("execution")
_making = threading.Lock()


class Context:
    """One attempt of one execution.

    `attempt` counts from 1. `deadline` is in seconds since the epoch on the database's clock, None without a timeout.
    """

    __slots__ = ("_cancelled", "_job_id", "_scheduled_us", "attempt", "deadline", "task_id", "user_id")

    def __init__(
        self, scheduled_us: int, job_id: Any, task_id: str, user_id: str, attempt: int, deadline: float | None
    ) -> None:
        self._scheduled_us = scheduled_us
        self._job_id = job_id
        self.task_id = task_id
        self.user_id = user_id
        self.attempt = attempt
        self.deadline = deadline
        self._cancelled: threading.Event | None = None

    @property
    def execution_id(self) -> str:
        """The same over all attempts: use it as the idempotency key of side effects."""
        return f"{self._scheduled_us}-{self._job_id}"

    @property
    def job_id(self) -> str:
        return str(self._job_id)

    @property
    def scheduled_at(self) -> float:
        """Seconds since the epoch."""
        return self._scheduled_us / 1_000_000

    @property
    def cancelled(self) -> threading.Event:
        """Set when the attempt should stop (cancelled, timed out, lease lost): long plain functions look at it."""
        with _making:  # not before somebody looks: few tasks do, and it costs as much as a no-op's start
            if self._cancelled is None:
                self._cancelled = threading.Event()
            return self._cancelled

    def as_dict(self) -> dict[str, Any]:
        """The arguments that make this context in another process."""
        return {
            "scheduled_us": self._scheduled_us,
            "job_id": self.job_id,
            "task_id": self.task_id,
            "user_id": self.user_id,
            "attempt": self.attempt,
            "deadline": self.deadline,
        }


def current() -> Context:
    """The context of the running execution; LookupError outside of one."""
    return _current.get()


def enter(context: Context) -> None:
    _current.set(context)
