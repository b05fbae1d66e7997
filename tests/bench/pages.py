"""A long history, and how long the API and the dashboard take to show it."""

from __future__ import annotations

import http.client
import json
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

from app.api.pagination import write_cursor
from app.store.search import Position
from tests.bench.lab import Lab

TASKS, USERS, JOBS_HOURS, RECURRING = 12, 40, 48, 20_000
TRIES = 7
LAST_JOB = "ffffffff-ffff-7fff-bfff-ffffffffffff"
"""A cursor at this job of an instant comes before all that is older."""

_HOUR = """
insert into pgtick.finished_executions
    (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, started_at, finished_at, worker_id,
     error, errors)
select pgtick.uuid7(at), at, 'user_' || 1 + i %% %(users)s, 1 + i %% %(tasks)s,
    case when failed then 'FAILED' else 'COMPLETED' end, case when failed then 4 else 1 end,
    at, at + interval '12 ms', at + interval '112 ms', 1 + i %% 4,
    case when failed then 'ValueError: bad row ' || i end,
    case when failed then '[{"attempt": 1, "error": "ValueError: bad row", "at": "2026-01-01T00:00:00Z"}]'::jsonb end
from (
    select i, %(hour)s + interval '1 hour' * i / %(rows)s as at, i %% 97 = 0 as failed
    from generate_series(0, %(rows)s - 1) i
) as each
"""
_JOBS = """
insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, run_at, created_at)
select job_id, user_id, 'task_' || task_key, 'NOW', scheduled_at, scheduled_at
from pgtick.finished_executions
where scheduled_at >= %(hour)s and scheduled_at < %(hour)s + interval '1 hour'
"""
_RECURRING = """
with job as (
    insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, expression, timezone)
    select pgtick.uuid7(), 'user_' || 1 + i %% %(users)s, 'task_' || 1 + i %% %(tasks)s, 'CRON',
        format('%%s %%s * * %%s', i %% 60, i %% 24, case when i %% 3 = 0 then '1-5' else '*' end), 'Europe/Berlin'
    from generate_series(1, %(recurring)s) i
    returning *
)
insert into pgtick.schedules (job_id, user_id, task_key, next_run_at, expression, timezone, zone_version)
select job_id, user_id, split_part(task_id, '_', 2)::int, now() + interval '6 hours' + random() * interval '24 hours',
    expression, timezone, 'any'
from job
"""
_PENDING = """
insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)
select pgtick.uuid7(), at, at, 'user_' || 1 + i %% %(users)s, 1 + i %% %(tasks)s
from (select i, now() + i * interval '4 s' as at from generate_series(-1000, 20000) i) as each
"""
_STATS = """
insert into pgtick.execution_stats
select minute, task, worker, 60, 58, 1, 1, 6000, array[5, 10, 20, 10, 5, 3, 2, 1, 1, 1, 1, 1, 0, 0, 0]
from generate_series(date_trunc('minute', %(since)s::timestamptz), now(), interval '1 minute') minute,
    generate_series(1, %(tasks)s) task, generate_series(1, 2) worker
"""


def fill(lab: Lab, rows: int, hours: int) -> None:
    """So many finished executions, spread evenly over the hours before this one, and what goes with them."""
    run = lab.connection.execute
    since = datetime.now(UTC) - timedelta(hours=min(hours, 8 * 24))
    facts = {"users": USERS, "tasks": TASKS, "recurring": RECURRING, "since": since}
    run("insert into pgtick.tasks (task_id, target) select 'task_' || i, 'x' from generate_series(1, %s) i", [TASKS])
    run("insert into pgtick.users (user_id) select 'user_' || i from generate_series(1, %s) i", [USERS])
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for day in range(hours // 24 + 1, -1, -1):  # one at a time, for fewer locks at once
        for parent in ("finished_executions", "jobs", "execution_stats"):
            day_at = now - timedelta(days=day)
            run("select pgtick.extend_partitions(%s, %s, now() + interval '48 hours')", [parent, day_at])
    for back in range(1, hours + 1):
        lab.say(f"writing {rows} finished executions, hour {back} of {hours}")
        hour = {**facts, "rows": rows // hours, "hour": now - timedelta(hours=back)}
        run(_HOUR, hour)
        if back <= JOBS_HOURS:
            run(_JOBS, hour)
    run("select pgtick.ensure_partitions(interval '48 hours')")
    for statement in (_RECURRING, _PENDING, _STATS):
        run(statement, facts)
    run("vacuum analyze")


def times(lab: Lab, address: str, hours: int) -> dict[str, dict[str, float]]:
    """Milliseconds each page took, from request to the last byte: the median of some requests, and the longest."""
    job_id, execution_id = lab.connection.execute(
        "select job_id::text, pgtick.execution_id(scheduled_at, job_id) from pgtick.finished_executions"
        " where status = 'FAILED' order by scheduled_at desc limit 1"
    ).fetchone() or ("", "")
    recurring = lab.value("select job_id::text from pgtick.schedules limit 1")

    def back(share: float, of_hours: int) -> str:
        at = datetime.now(UTC) - timedelta(hours=of_hours * share)
        return f"cursor={quote(write_cursor(Position(at, LAST_JOB)))}"

    pages = {}
    for path, back_to in (("/executions", hours), ("/jobs", min(hours, JOBS_HOURS))):
        for whose in ("", "user_id=user_7&"):
            for place, cursor in {"first": "", "middle": back(0.5, back_to), "last": back(0.999, back_to)}.items():
                pages[f"{path} {whose and 'of a user '}{place}"] = f"{path}?{whose}{cursor}".rstrip("?&")
    pages |= {
        "/executions FAILED": "/executions?status=FAILED",
        "Overview": "/",
        "Jobs": "/ui/jobs",
        "Job": f"/ui/jobs/{recurring}",
        "Job that ran": f"/ui/jobs/{job_id}",
        "New job": "/ui/jobs/new",
        "Executions": "/ui/executions",
        "Execution": f"/ui/executions/{execution_id}",
        "Schedules": "/ui/schedules",
        "Tasks": "/ui/tasks",
        "Workers": "/ui/workers",
        "Database": "/ui/database",
    }
    url = urlsplit(address)
    connection = http.client.HTTPConnection(str(url.hostname), url.port)
    return {name: _times(connection, path) for name, path in pages.items()}


def _times(connection: http.client.HTTPConnection, path: str) -> dict[str, float]:
    took = []
    for _ in range(TRIES + 1):
        started = time.perf_counter()
        connection.request("GET", path)
        response = connection.getresponse()
        body: Any = response.read()
        took.append((time.perf_counter() - started) * 1000)
        if response.status != 200:
            raise RuntimeError(f"GET {path}: {response.status} {body[:500]!r}")
        if path.startswith(("/executions", "/jobs")) and not next(iter(json.loads(body).values())):
            raise RuntimeError(f"GET {path}: an empty page")
    return {"median": statistics.median(took[1:]), "longest": max(took[1:])}
