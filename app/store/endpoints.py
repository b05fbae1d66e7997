"""HTTP tasks: registering them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from app.domain.endpoint import Endpoint, new_secret
from app.domain.limits import Limits
from app.domain.retry import Backoff
from app.errors import PgtickError
from app.store import queries
from app.store.channel import TASKS
from app.store.pool import Connection


class IsPython(PgtickError):
    """A task that a worker's code registers: it is no HTTP task."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id!r} is a Python function that workers register themselves")


@dataclass(frozen=True)
class HttpTask:
    """What there is to register. Without a secret the endpoint's stays, or gets a new one."""

    task_id: str
    endpoint: Endpoint
    description: str | None
    queue: str
    priority: int
    max_retries: int
    timeout_s: float
    backoff: Backoff
    limits: Limits
    parameters_schema: dict[str, Any] | None


def put(connection: Connection, task: HttpTask) -> tuple[bool, str | None]:
    """Registers the task, or changes it: whether it is new, and its secret if that was made up here."""
    endpoint, limits = task.endpoint, task.limits
    with connection.transaction():
        before = connection.execute(
            "select concurrency_key from pgtick.tasks where task_id = %s for update", [task.task_id]
        ).fetchone()
        row = connection.execute(
            queries.put_endpoint,
            {
                "task_id": task.task_id,
                "target": endpoint.url,
                "description": task.description,
                "queue": task.queue,
                "priority": limits.stored_priority(task.priority),
                "max_retries": task.max_retries,
                "base_s": task.backoff.base_s,
                "factor": task.backoff.factor,
                "cap_s": task.backoff.cap_s,
                "jitter": task.backoff.jitter,
                "timeout_s": task.timeout_s,
                "max_concurrent": limits.max_concurrent,
                "concurrency_key": limits.concurrency_key,
                "max_per_key": limits.max_per_key,
                "rate_per_s": limits.rate_per_s,
                "schema": None if task.parameters_schema is None else json.dumps(task.parameters_schema),
                "options": json.dumps(
                    {"method": endpoint.method, "expected": endpoint.expected, "retried": endpoint.retried}
                ),
            },
        ).fetchone()
        if row is None:
            raise IsPython(task.task_id)
        new = new_secret()
        secret = connection.execute(
            queries.put_secret,
            {
                "task_id": task.task_id,
                "secret": endpoint.secret or None,
                "new": new,
                "headers": json.dumps(endpoint.headers),
            },
        ).fetchone()
        rekeyed = [row[0]] if before is not None and before[0] != limits.concurrency_key else []
        connection.execute("select pgtick.apply_limits(array[%s], %s::int4[])", [row[0], rekeyed])
        connection.execute("select pgtick.audit('put_task', %s)", [task.task_id])
        connection.execute("select pgtick.tell(%s, '')", [TASKS])
    return before is None, new if secret and secret[0] else None
