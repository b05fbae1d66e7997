"""Executions as the API shows them: pages of them, and one by its id."""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from app.domain.execution import ExecutionId
from app.store.pool import Connection

_GET = """
select e.job_id::text, e.scheduled_at, e.task_id, e.user_id, e.status, e.attempt, e.due_at, e.started_at,
       e.finished_at, e.worker_id, e.losses, e.error, e.errors::text as errors, e.result::text as result, e.origin,
       e.skipped,
       (select r.progress::text from pgtick.running_executions r
        where e.status = 'IN_PROGRESS' and r.job_id = e.job_id and r.scheduled_at = e.scheduled_at limit 1) as progress
from pgtick.executions e
where e.job_id = %(job_id)s and e.scheduled_at = %(scheduled_at)s
limit 1
"""


def get(connection: Connection, execution_id: ExecutionId) -> dict[str, Any] | None:
    """One execution in whatever state it is; None when there is none with this id."""
    values = {"job_id": execution_id.job_id, "scheduled_at": execution_id.scheduled_at}
    return connection.cursor(row_factory=dict_row).execute(_GET, values, prepare=False).fetchone()
