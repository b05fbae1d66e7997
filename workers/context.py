"""What a running task can learn about its execution: `current().attempt`."""

from __future__ import annotations

import json
import threading
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

PROGRESS_LIMIT = 10_000
"""Characters of what is kept of a progress report."""

_current: ContextVar[Context] = ContextVar("execution")
_making = threading.Lock()


class Context:
    """One attempt of one execution.

    `attempt` counts from 1. `deadline` is in seconds since the epoch on the database's clock, None without a timeout.
    """

    __slots__ = (
        "_cancelled",
        "_claim_id",
        "_job_id",
        "_progress",
        "_scheduled_us",
        "_trace",
        "attempt",
        "deadline",
        "task_id",
        "user_id",
    )

    def __init__(
        self,
        scheduled_us: int,
        job_id: Any,
        task_id: str,
        user_id: str,
        attempt: int,
        deadline: float | None,
        trace: str | None = None,
        claim_id: int = 0,
        progress: MutableMapping[int, str] | None = None,
    ) -> None:
        self._scheduled_us = scheduled_us
        self._job_id = job_id
        self.task_id = task_id
        self.user_id = user_id
        self.attempt = attempt
        self.deadline = deadline
        self._trace = trace
        self._cancelled: threading.Event | None = None
        self._claim_id = claim_id
        self._progress = progress

    def progressed(self, progress: str) -> None:
        """Takes in how far the execution is, as JSON."""
        if self._progress is not None:
            self._progress[self._claim_id] = progress

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
    def trace(self) -> dict[str, str]:
        """The trace that the job is part of, as headers to hand on: `traceparent`, perhaps `tracestate`; or empty."""
        return json.loads(self._trace) if self._trace else {}

    @property
    def traceparent(self) -> str | None:
        return self.trace.get("traceparent")

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
            "trace": self._trace,
        }


def current() -> Context:
    """The context of the running execution; LookupError outside of one."""
    return _current.get()


def report_progress(progress: Any) -> None:
    """Says how far the running execution is: any small JSON value, shown with it while it runs. Cheap to call often.

    Only the last one of each second or so is stored. Raises ValueError for what is not JSON, or not small.
    """
    try:
        text = json.dumps(progress, allow_nan=False)
    except TypeError as error:
        raise ValueError(f"progress is not JSON: {error}") from None
    if len(text) > PROGRESS_LIMIT or "\\u0000" in text or "\\ud" in text:
        raise ValueError(f"progress must be JSON of at most {PROGRESS_LIMIT} storable characters")
    current().progressed(text)


def enter(context: Context) -> None:
    _current.set(context)
