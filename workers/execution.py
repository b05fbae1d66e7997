"""A claimed execution in this worker, and how it can end."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.context import Context
from workers.registry import Task
from workers.signals import Cancel, Rejected, Retry, Snooze, in_seconds

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
TRACE_LIMIT = 4_000
"""Characters of a traceback's end that are kept."""
ERROR_LIMIT = 10_000
"""Characters of an error text that are kept."""
RESULT_LIMIT = 4 * 1024 * 1024
"""Characters of a result's JSON: more belongs elsewhere, with its address as the result."""
CLAIM, JOB, DUE_AT, TASK_KEY, PRIORITY, TO_DO = 0, 1, 2, 4, 5, 11
"""Places in a row of `claim_due.sql`; what its job is to do comes last."""


class Execution:
    """One claim: what `claim_due.sql` and `read_jobs.sql` returned, and its life in this worker.

    Times are seconds since the epoch on the database's clock; what only this process asks about (claimed_at, taken_at,
    leased_until) is on the monotonic clock, which nobody sets.
    """

    __slots__ = (
        "asyncio_task",
        "attempt",
        "cancel_requested",
        "claim_id",
        "context",
        "due_at",
        "entered",
        "expires_at",
        "interrupted",
        "job_id",
        "leased_until",
        "losses",
        "lost",
        "max_retries",
        "over",
        "parameters",
        "reported",
        "revoked",
        "scheduled_us",
        "started_at",
        "suspect",
        "taken_at",
        "task",
        "task_key",
        "timeout",
        "trace",
        "unreadable",
        "user_id",
    )

    def __init__(self, row: Sequence[Any], task: Task, claimed_at: float, lease_s: float = math.inf) -> None:
        (
            self.claim_id,
            self.job_id,
            self.due_at,
            scheduled_us,
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
            self.trace,
        ) = row
        self.task = task
        self.unreadable = None if scheduled_us is not None else "its scheduled_at is infinite"
        self.scheduled_us: int = int(self.due_at * 1e6) if scheduled_us is None else scheduled_us
        self.max_retries: int = task.max_retries if max_retries is None else max_retries
        self.timeout: float | None = task.timeout if timeout is None else timeout
        self.taken_at = time.monotonic()
        self.leased_until = claimed_at + lease_s  # at least: the database counts from a little later
        self.started_at: float | None = None
        self.asyncio_task: asyncio.Task[None] | None = None
        self.context: Context | None = None
        self.entered = False
        """Whether its run has taken its first step: before that, cancelling the asyncio task would end it unseen."""
        self.reported = False
        """Whether its outcome is on its way to the database."""
        self.over = False
        """Whether its slot is free again, and its outcome passed on."""
        self.lost = False
        """Whether somebody else may have it by now: then nothing is reported of it."""
        self.interrupted = False
        """Whether it was told to stop, for whatever reason."""
        self.cancel_requested = False
        self.revoked = False
        """Whether it must not start any more."""

    @property
    def execution_id(self) -> str:
        return f"{self.scheduled_us}-{self.job_id}"

    def __lt__(self, other: Execution) -> bool:
        return bool(self.due_at < other.due_at)

    def is_retried_after(self, failure: Failed) -> bool:
        """Whether another attempt follows."""
        return not failure.final and self.attempt <= self.max_retries

    def decode_parameters(self) -> dict[str, Any]:
        """The job's parameters; raises Unreadable when they cannot be had."""
        if self.unreadable is not None:
            raise Unreadable(self.unreadable)
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


class Unstartable(Exception):
    """This worker's host has nothing left to start the run with, and it has not begun."""


class NotJson(ValueError):
    """A result that cannot be stored. The task did its work, so it is not tried again."""


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


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Handed back by the task itself: due again so many seconds later, and no attempt is charged."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Lost:
    """What ran it died, of something else: janitors judge it as they do what a dead worker has left."""


Outcome = Completed | Failed | Ended | Released | Snoozed | Lost

Report = tuple[Execution, Outcome, float]
"""An execution, how it ended, and when (seconds since the epoch, database clock)."""


def storable(text: str, limit: int = ERROR_LIMIT) -> str:
    """The text as PostgreSQL can store it: without NUL and lone surrogates, and not endless."""
    text = UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return text if len(text) <= limit else text[:limit] + f"… ({len(text)} characters)"


def failure(error: BaseException) -> Failed:
    """The outcome of a task that raised, with the end of its traceback. Whatever was raised, this does not raise."""
    said = type(error).__name__
    try:
        said += f": {error}"
    except BaseException:
        said += ", whose text cannot be had"
    try:
        frames = traceback.format_exception(error)
    except BaseException:  # what it says of itself makes no sense, as a SyntaxError with a text for its offset
        frames = traceback.format_tb(error.__traceback__)
    return Failed(storable(said), trace=storable("".join(frames[-8:])[-TRACE_LIMIT:]))


def outcome_of(error: BaseException) -> Outcome:
    """What a task meant that raised. Whatever was raised, this does not raise."""
    try:
        return _meant(error)
    except BaseException:  # a reason without a text, a signal of the task's own making
        return failure(error)


def _meant(error: BaseException) -> Outcome:
    if isinstance(error, Retry):
        after_s = None if error.after is None else in_seconds(error.after)
        if after_s is None and error.after is not None:
            return _no_duration("Retry(after=…)", error.after)
        return Failed(storable(f"{error.reason}"), after_s=after_s)
    if isinstance(error, Snooze):
        seconds = in_seconds(error.seconds)
        return _no_duration("Snooze(…)", error.seconds) if seconds is None else Snoozed(seconds)
    if isinstance(error, Cancel):
        return Ended("CANCELLED", storable(f"{error.reason}"))
    if isinstance(error, Rejected):
        return Failed(storable(f"{error.reason}"), final=True)
    return failure(error)


def _no_duration(where: str, said: object) -> Failed:
    return Failed(storable(f"{where} takes seconds or a timedelta, not {said!r}"), final=True)


def encode_result(result: Any) -> str | None:
    """A task's result as JSON text that PostgreSQL can store; raises NotJson when it is none."""
    if result is None:
        return None
    try:
        text = json.dumps(result, allow_nan=False)
        if "\\u0000" in text or "\\ud" in text:
            text = json.dumps(_storable_value(result), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"its result is not JSON: {type(error).__name__}: {error}") from error
    if len(text) > RESULT_LIMIT:
        raise NotJson(f"its result is too large: {len(text):,} characters of JSON, {RESULT_LIMIT:,} at most")
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
