"""For programs in Python that want jobs made: inside their own transaction, so that a job exists exactly when their
change does.

    from app.client import enqueue

    with psycopg.connect(...) as connection:                     # or a SQLAlchemy Connection or Session
        connection.execute("insert into orders ...")
        enqueue(connection, "send_invoice", {"order": 7})        # now
        enqueue(connection, "remind", {"order": 7}, schedule="2030-01-01T09:00:00+01:00")

Nothing else of pgtick is needed where this runs, and nothing is sent before the commit. Its packages are app, workers
and migrations: a program with a package of one of these names calls pgtick.create_job in SQL or posts over REST.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, cast

_QUERY = (
    "select pgtick.create_job(task_id => {task_id}, schedule => {schedule}, parameters => cast({parameters} as jsonb),"
    " user_id => {user_id}, timezone => {timezone}, max_retries => {max_retries}, timeout_s => {timeout_s},"
    " traceparent => {traceparent}, tracestate => {tracestate})::text"
)


class Executes(Protocol):
    """A psycopg Connection or Cursor, or a SQLAlchemy Connection or Session."""

    def execute(self, statement: Any, parameters: Any = ..., /) -> Any: ...


def enqueue(
    connection: Executes,
    task_id: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    schedule: str | datetime = "now",
    user_id: str = "default",
    timezone: str | None = None,
    max_retries: int | None = None,
    timeout_s: float | None = None,
    traceparent: str | None = None,
    tracestate: str | None = None,
) -> str:
    """Makes a job in the transaction of `connection`; returns its id.

    `schedule` is "now", an aware datetime or its ISO 8601 text, or a cron expression. `timezone` is what a text without
    offset needs; expressions are in UTC without it. `traceparent` and `tracestate` are those of W3C Trace Context; when
    they are none, the job has no trace. Raises the driver's error for what cannot be: an unknown task, a schedule that
    is none. Parameters are not checked against the task's: where they do not fit, the attempts fail.
    """
    if isinstance(schedule, datetime):
        if schedule.tzinfo is None:
            raise ValueError("schedule must be an aware datetime")
        schedule = schedule.isoformat()
    values = {
        "task_id": task_id,
        "schedule": schedule,
        "parameters": json.dumps(parameters or {}, allow_nan=False),
        "user_id": user_id,
        "timezone": timezone,
        "max_retries": max_retries,
        "timeout_s": timeout_s,
        "traceparent": traceparent,
        "tracestate": tracestate,
    }
    return str(_run(connection, values))


def _run(connection: Executes, values: dict[str, Any]) -> Any:
    casts = {"max_retries": "integer", "timeout_s": "double precision"}
    if type(connection).__module__.partition(".")[0] == "sqlalchemy":
        from sqlalchemy import text

        places = {name: f"cast(:{name} as {casts.get(name, 'text')})" for name in values}
        return connection.execute(text(_QUERY.format(**places)), values).scalar_one()
    places = {name: f"cast(%({name})s as {casts.get(name, 'text')})" for name in values}
    found = connection.execute(_QUERY.format(**places), values)
    return cast(Any, found).fetchone()[0]
