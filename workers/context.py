"""What a running task can learn about its execution: `current().attempt`."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field

_current: ContextVar[Context] = ContextVar("execution")


@dataclass(frozen=True, slots=True)
class Context:
    """One attempt of one execution.

    `execution_id` stays the same over all attempts: use it as the idempotency key of side effects. `attempt` counts
    from 1. `scheduled_at` and `deadline` are seconds since the epoch on the database's clock; `deadline` is None
    without a timeout. `cancelled` is set when the attempt should stop (cancelled, timed out, lease lost): plain
    functions that run long should look at it now and then.
    """

    execution_id: str
    job_id: str
    task_id: str
    user_id: str
    attempt: int
    scheduled_at: float
    deadline: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)


def current() -> Context:
    """The context of the running execution; LookupError outside of one."""
    return _current.get()


def enter(context: Context) -> None:
    _current.set(context)
