"""Many jobs are written as few are: COPY and `pgtick.insert_jobs` make the same rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from app.domain.ids import uuid7s
from app.domain.job import NewJob
from app.store import jobs

Connection = psycopg.Connection[Any]

WRITTEN = """
select j.job_id, j.user_id, j.task_id, j.schedule_type, j.expression, j.timezone, j.run_at - now(), j.parameters,
       j.max_retries, j.timeout_s, j.policies, j.trace, p.scheduled_at - now(), p.due_at - now(), p.user_id,
       p.task_key, p.priority, p.attempt, p.overlap, p.expires_at, s.next_run_at, s.priority, s.policies
from pgtick.jobs j
left join pgtick.pending_executions p using (job_id)
left join pgtick.schedules s using (job_id)
order by 1
"""


def new_jobs(now: datetime) -> list[NewJob]:
    """For now, past, soon with a jitter, with every option, beyond the partitions, and recurring."""
    soon = now + timedelta(hours=1)
    text = r'{"path": "C:\\temp\\n", "lines": "a\tb\nc", "empty": ""}'
    options = {"max_retries": 7, "timeout_s": 1.5, "overlap": "skip", "expires_at": soon, "policies": '{"a": "\\\\"}'}
    kinds: list[dict[str, Any]] = [
        {},
        {"schedule_type": "DATE", "run_at": now - timedelta(days=1)},
        {"schedule_type": "DATE", "run_at": soon, "due_at": soon + timedelta(seconds=7)},
        {"parameters": text, "user_id": "a\ttab, a\nline and a \\", **options},
        {"trace": r'{"traceparent": "00-1-2-01", "tracestate": "a=\"b\\"}'},
        {"schedule_type": "DATE", "run_at": now + timedelta(days=300)},
        {"schedule_type": "CRON", "run_at": soon, "expression": "0 10 * * *", "overlap": "skip"},
    ]
    usual = {"user_id": "ann", "task_id": "send_email", "schedule_type": "NOW", "timezone": "UTC", "parameters": "{}"}
    none = dict.fromkeys(NewJob.__struct_fields__)
    ids = uuid7s(len(kinds), now.timestamp())
    return [NewJob(**none | usual | kind | {"job_id": job_id}) for job_id, kind in zip(ids, kinds, strict=True)]


def test_copied_and_inserted_jobs_are_the_same(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target, priority) values ('send_email', 'x', 3)")
    new = new_jobs(datetime.now(UTC))
    both = []
    with connection.transaction():  # one now() for both
        for copy_from in (1, 1000):
            monkeypatch.setattr(jobs, "COPY_FROM", copy_from)
            with connection.transaction(force_rollback=True):
                answer = jobs.insert(connection, new, "any")
                both.append((answer, connection.execute(WRITTEN).fetchall()))
    assert both[0] == both[1]
    assert len(both[0][1]) == len(new)


def test_an_unknown_task_among_many_writes_none(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'x')")
    monkeypatch.setattr(jobs, "COPY_FROM", 1)
    new = new_jobs(datetime.now(UTC))
    new[2].task_id = "nobody_knows"
    with pytest.raises(psycopg.errors.NotNullViolation) as refused:
        jobs.insert(connection, new, "any")
    assert refused.value.diag.column_name == "task_key"
    assert connection.execute("select count(*) from pgtick.jobs").fetchone() == (0,)
