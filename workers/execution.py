"""A claimed execution in this worker, and how it can end."""

from __future__ import annotations

import asyncio
import json
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.context import Context
from workers.registry import Task

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
TRACE_LIMIT = 4_000
"""Characters of a traceback's end that are kept."""
DUE_AT, TASK_KEY, PRIORITY = 2, 4, 5
"""Places in a row of `claim_due.sql`."""
ERROR_LIMIT = 10_000
"""Characters of an error text that are kept."""


class Execution:
    """One claim: what `claim_due.sql` returned, and its life in this worker.

    Times are seconds since the epoch on the database's clock.
    """

    __slots__ = (
        "asyncio_task",
        "attempt",
        "cancel_requested",
        "claim_id",
        "claimed_at",
        "context",
        "due_at",
        "expires_at",
        "job_id",
        "losses",
        "lost",
        "max_retries",
        "parameters",
        "reported",
        "scheduled_us",
        "started_at",
        "suspect",
        "task",
        "task_key",
        "timeout",
        "user_id",
    )

    def __init__(self, row: Sequence[Any], task: Task, claimed_at: float) -> None:
        (
            self.claim_id,
            self.job_id,
            self.due_at,
            self.scheduled_us,
            self.task_key,
            _priority,
            self.attempt,
            self.losses,
            self.suspect,
            self.expires_at,
            self.user_id,
            self.parameters,
            max_retries,
            timeout,
        ) = row
        self.task = task
        self.max_retries: int = task.max_retries if max_retries is None else max_retries
        self.timeout: float | None = task.timeout if timeout is None else timeout
        self.claimed_at = claimed_at
        self.started_at: float | None = None
        self.asyncio_task: asyncio.Task[None] | None = None
        self.context: Context | None = None
        self.reported = False
        self.lost = False
        self.cancel_requested = False

    @property
    def execution_id(self) -> str:
        return f"{self.scheduled_us}-{self.job_id}"

    def __lt__(self, other: Execution) -> bool:
        return bool(self.due_at < other.due_at)

    def decode_parameters(self) -> dict[str, Any]:
        """The job's parameters; raises Unreadable when they cannot be had."""
        if self.parameters is None:
            raise Unreadable("the job's row is gone")
        try:
            parameters = json.loads(self.parameters)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"the parameters cannot be read: {type(error).__name__}: {error}") from error
        if not isinstance(parameters, dict):
            raise Unreadable("the parameters are not an object")
        return parameters


class Unreadable(Exception):
    """A row that no worker can make sense of: trying again would not help."""


@dataclass(frozen=True, slots=True)
class Completed:
    """Success; `result` is JSON text or None."""

    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A visible failure; tried again while attempts are left, unless it is final."""

    error: str
    final: bool = False
    trace: str | None = None
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """Over without success or failure: CANCELLED or SKIPPED, with the reason."""

    status: str
    reason: str
    charged: bool = True


@dataclass(frozen=True, slots=True)
class Released:
    """Handed back: it did not run to its end through no fault of its own, and no attempt is charged."""


Outcome = Completed | Failed | Ended | Released


def storable(text: str, limit: int = ERROR_LIMIT) -> str:
    """The text as PostgreSQL can store it: without NUL and lone surrogates, and not endless."""
    text = UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return text if len(text) <= limit else text[:limit] + f"… ({len(text)} characters)"


def failure(error: BaseException) -> Failed:
    """The outcome of a task that raised, with the end of its traceback."""
    frames = traceback.format_exception(error)[-8:]
    return Failed(storable(f"{type(error).__name__}: {error}"), trace=storable("".join(frames)[-TRACE_LIMIT:]))


def encode_result(result: Any) -> str | None:
    """A task's result as JSON text; raises TypeError or ValueError when it is not JSON."""
    if result is None:
        return None
    text = json.dumps(result, allow_nan=False)
    if "\\u0000" in text or "\\ud" in text:
        text = json.dumps(_storable_value(result), allow_nan=False)
    return text


def _storable_value(value: Any) -> Any:
    if isinstance(value, str):
        # Pairs of surrogates that json made of one character are fine; what is left in the str is not.
        return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {_storable_value(str(key)): _storable_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable_value(item) for item in value]
    return value
