"""Which way out of running_executions each outcome takes: complete, retry, finish, release or disown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from app.clock import in_utc
from app.domain.retry import DAY_S
from app.store import arrays, queries
from workers.execution import Completed, Ended, Execution, Failed, Lost, Report, Snoozed


def transitions(batch: Sequence[Report], worker_id: int) -> list[tuple[str, dict[str, str]]]:
    """The statements that store these reports, each with its columns, in the order of their claims."""
    completed: list[tuple[Any, ...]] = []
    retried: list[tuple[Any, ...]] = []
    finished: list[tuple[Any, ...]] = []
    released: list[tuple[Any, ...]] = []
    lost: list[tuple[Any, ...]] = []
    for execution, outcome, at in sorted(batch, key=lambda report: report[0].claim_id):
        claim_id, started_at = execution.claim_id, execution.started_at
        if isinstance(outcome, Completed):
            completed.append((claim_id, started_at, at, outcome.result))
        elif isinstance(outcome, Failed) and execution.is_retried_after(outcome):
            due_at = at + _delay_s(execution, outcome)
            retried.append((claim_id, due_at, _error(execution, outcome.error, at, worker_id, outcome.trace)))
        elif isinstance(outcome, Failed):
            error = _error(execution, outcome.error, at, worker_id, outcome.trace)
            finished.append((claim_id, "FAILED", started_at, at, error, True))
        elif isinstance(outcome, Ended):
            error = _error(execution, outcome.reason, at, worker_id)
            finished.append((claim_id, outcome.status, started_at, at, error, outcome.charged))
        elif isinstance(outcome, Lost):
            lost.append((claim_id,))
        else:
            put_off_to = at + _bounded(outcome.seconds) if isinstance(outcome, Snoozed) else None
            released.append((claim_id, put_off_to))
    ways = (
        (queries.complete, ("claims", "started", "finished", "results"), completed),
        (queries.retry, ("claims", "due", "errors"), retried),
        (queries.finish, ("claims", "statuses", "started", "finished", "errors", "charged"), finished),
        (queries.release, ("claims", "due"), released),
        (queries.disown, ("claims",), lost),
    )
    return [(statement, arrays.columns(names, rows)) for statement, names, rows in ways if rows]


def _delay_s(execution: Execution, failure: Failed) -> float:
    backoff = execution.task.backoff
    delay = failure.after_s if failure.after_s is not None else backoff.delay_s(execution.attempt)
    return _bounded(min(delay, backoff.cap_s))


def _bounded(seconds: float) -> float:
    """A pause before another try: a day at most, which is also what nonsense comes to."""
    return min(seconds, DAY_S) if seconds >= 0 else DAY_S


def _error(execution: Execution, text: str, at: float, worker_id: int, trace: str | None = None) -> str:
    """One entry of an execution's `errors`, as JSON."""
    facts: dict[str, Any] = {"attempt": execution.attempt, "at": _iso(at), "worker_id": worker_id, "error": text}
    if execution.started_at is not None:
        facts["started_at"] = _iso(execution.started_at)
    if trace:
        facts["trace"] = trace
    return json.dumps(facts)


def _iso(at: float) -> str:
    return in_utc(datetime.fromtimestamp(at, UTC))
