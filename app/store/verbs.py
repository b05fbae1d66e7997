"""What people do to jobs, executions and workers: thin calls of the functions of the schema, to be made in `acting`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec
import psycopg
from psycopg.rows import dict_row

from app.domain.execution import ExecutionId
from app.errors import PgtickError
from app.store.pool import Connection

_DEFINITION = """
select j.job_id, j.user_id, j.task_id, j.schedule_type, j.expression, j.timezone, j.run_at,
       j.parameters::text as parameters, j.max_retries, j.timeout_s, j.policies, j.cancelled_at,
       s.next_run_at, s.anchor_at, s.planned_through, s.zone_version, s.runs, s.skips, s.paused_at
from pgtick.jobs j
left join pgtick.schedules s using (job_id)
where j.job_id = %s
"""

_CANCELLABLE = """
select j.cancelled_at is null and (
    exists (select from pgtick.schedules s where s.job_id = j.job_id)
    or exists (select from pgtick.pending_executions p where p.job_id = j.job_id)
    or exists (select from pgtick.running_executions r where r.job_id = j.job_id))
from pgtick.jobs j
where j.job_id = %(job_id)s
"""

_PENDING = """
select scheduled_at from pgtick.pending_executions
where job_id = %s and attempt = 0 and losses = 0 and origin is null and due_at > clock_timestamp()
order by 1
"""


class Refused(PgtickError):
    """A verb that cannot be done. `status` is what HTTP would say, `field` the argument at fault."""

    def __init__(self, status: int, field: str, rule: str) -> None:
        self.status = status
        self.field = field
        self.rule = rule
        super().__init__(rule)


@contextmanager
def acting(connection: Connection, user_id: str) -> Iterator[None]:
    """One transaction in the name of a user, whom the audit log then tells.

    Errors that the functions raise on purpose are raised as Refused.
    """
    try:
        with connection.transaction():
            connection.execute("select set_config('pgtick.user_id', %s, true)", [user_id])
            yield
    except (
        psycopg.errors.NoDataFound,
        psycopg.errors.ObjectNotInPrerequisiteState,
        psycopg.errors.InvalidParameterValue,
    ) as error:
        field, _, rule = (error.diag.message_primary or str(error)).partition(": ")
        status = {"P0002": 404, "55000": 409}.get(error.sqlstate or "", 422)
        raise Refused(status, field, rule) from error


def pause(connection: Connection, job_id: str, note: str | None) -> int:
    """How many pending executions were taken back."""
    return int(_value(connection, "select pgtick.pause_job(%s, %s)", job_id, note))


def resume(connection: Connection, job_id: str) -> bool:
    """Whether it was paused. Its next run is the next on its grid."""
    return bool(_value(connection, "select pgtick.resume_job(%s)", job_id))


def pause_task(connection: Connection, task_id: str, note: str | None) -> int:
    """How many executions are due and held back."""
    return int(_value(connection, "select pgtick.pause_task(%s, %s)", task_id, note))


def resume_task(connection: Connection, task_id: str) -> bool:
    """Whether it was paused."""
    return bool(_value(connection, "select pgtick.resume_task(%s)", task_id))


def cancel(connection: Connection, job_id: str) -> bool | None:
    """Cancels what has not started. Whether there was anything to cancel; None for an unknown job.

    A job that is over stays as it ended.
    """
    row = connection.execute(_CANCELLABLE, {"job_id": job_id}).fetchone()
    if row is None:
        return None
    if row[0]:
        connection.execute("select pgtick.cancel_job(%s)", [job_id])
    return bool(row[0])


def run_now(connection: Connection, job_id: str) -> str:
    """The id of the execution that was made."""
    return str(_value(connection, "select pgtick.run_now(%s)", job_id))


def skip(connection: Connection, job_id: str, at: datetime) -> str:
    """The id of the execution that is SKIPPED now."""
    return str(_value(connection, "select pgtick.skip_run(%s, %s)", job_id, at))


def backfill(connection: Connection, job_id: str, times: Sequence[datetime]) -> int:
    """How many executions were made."""
    return int(_value(connection, "select pgtick.backfill(%s, %s::timestamptz[])", job_id, list(times)))


def edit(connection: Connection, job_id: str, changes: dict[str, Any]) -> bool:
    """Whether anything changed. Values of `changes` may be msgspec.Raw."""
    encoded = msgspec.json.encode(changes).decode()
    return bool(_value(connection, "select pgtick.edit_job(%s, %s::jsonb)", job_id, encoded))


def cancel_execution(connection: Connection, execution_id: ExecutionId) -> str | None:
    """Its status then: IN_PROGRESS when it runs and is told to stop, else CANCELLED or how it was over; None: none."""
    status: str | None = _value(connection, "select pgtick.cancel_execution(%s, %s)", *_key(execution_id))
    return status


def rerun(connection: Connection, execution_id: ExecutionId) -> str:
    """Runs one that is over once more; the id of the new execution."""
    return str(_value(connection, "select pgtick.rerun(%s, %s)", *_key(execution_id)))


def drain_worker(connection: Connection, worker: str) -> int:
    """Has a worker, by id or name, or all of a host, finish what they run and end; how many there are."""
    return int(_value(connection, "select pgtick.drain_worker(%s)", worker))


def lock(connection: Connection, job_id: str) -> None:
    """Keeps others from changing the job until the end of the transaction."""
    connection.execute("select pgtick.lock_job(%s)", [job_id])


def definition(connection: Connection, job_id: str) -> dict[str, Any] | None:
    """A job as it is defined, with its schedule."""
    return connection.cursor(row_factory=dict_row).execute(_DEFINITION, [job_id]).fetchone()


def pending(connection: Connection, job_id: str) -> list[datetime]:
    """Times that its schedule has made pending and that are to come."""
    return [row[0] for row in connection.execute(_PENDING, [job_id]).fetchall()]


def _key(execution_id: ExecutionId) -> tuple[str, datetime]:
    return execution_id.job_id, execution_id.scheduled_at


def _value(connection: Connection, query: str, *values: Any) -> Any:
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return row[0]
