"""Jobs: writing many at once, reading one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from app.domain.job import NewJob
from app.store import arrays
from app.store.copying import lines
from app.store.pool import Connection

_INSERT = """
select earliest, now(), case when %s and earliest < now() + interval '1 second' then
    pgtick.tell('pgtick_due', (extract(epoch from earliest) * 1000000)::int8::text) end
from pgtick.insert_jobs(
    %s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[],
    %s::text[], %s::int2[], %s::float8[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s,
    %s::text[]) as earliest
"""

COPY_FROM = 100
"""So many jobs are worth the round trips of COPY: it writes 140 bytes of WAL a job less than INSERT."""

_ADD_USERS = """
insert into pgtick.users (user_id)
select user_id from unnest(%s::text[]) as u (user_id)
where not exists (select from pgtick.users known where known.user_id = u.user_id)
order by user_id
on conflict do nothing
"""

# Until when there are partitions for what waits and for what has run.
_FACTS = """
select now(),
       (select min(until_at) from pgtick.partition_windows
        where parent in ('pending_executions', 'finished_executions')),
       array(select (t.task_id, t.task_key, t.priority) from pgtick.tasks t where t.task_id = any (%s))
"""
_COPY_JOBS = """
copy pgtick.jobs
    (job_id, user_id, task_id, schedule_type, timezone, run_at, parameters, max_retries, timeout_s, policies, trace)
from stdin
"""
_COPY_PENDING = """
copy pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, overlap, expires_at)
from stdin
"""

_GET = """
select j.job_id::text, j.user_id, j.task_id, j.schedule_type, j.expression, j.timezone, j.run_at,
       j.parameters::text as parameters, j.max_retries, j.timeout_s, j.policies, j.trace, j.created_at, j.updated_at,
       j.cancelled_at, s.next_run_at, s.anchor_at, s.paused_at, s.paused_note, s.problem,
       s.runs, s.planned_through, s.skips
from pgtick.jobs j
left join pgtick.schedules s using (job_id)
where j.job_id = %s
"""


class Written(NamedTuple):
    """What a write of jobs answers: when it happened, which is when jobs for now are due, and the first due time.

    `woken`: workers hear of it with the commit.
    """

    now: datetime
    earliest: datetime | None
    woken: bool = False


def insert(connection: Connection, jobs: Sequence[NewJob], zone_version: str, *, wake: bool = False) -> Written:
    """Writes jobs: all or none. `wake`: a few that are due within a second wake workers with their commit."""
    if len(jobs) < COPY_FROM:
        return _insert(connection, jobs, zone_version, wake=wake)
    # Before the rest, whose locks last longer: others may be adding the same users.
    connection.execute(_ADD_USERS, [list({job.user_id for job in jobs})])
    with connection.transaction():
        copied = _copy(connection, jobs)
        rest = [job for job in jobs if job.job_id not in copied]
        written = _insert(connection, rest, zone_version)
    return Written(written.now, min(filter(None, (written.earliest, *copied.values())), default=None))


def _insert(connection: Connection, jobs: Sequence[NewJob], zone_version: str, *, wake: bool = False) -> Written:
    row = connection.execute(_INSERT, [wake, *_columns(jobs, zone_version)]).fetchone()
    assert row is not None
    return Written(now=row[1], earliest=row[0], woken=bool(row[2]))


def _copy(connection: Connection, jobs: Sequence[NewJob]) -> dict[str, datetime]:
    """Writes those that wait in a partition from the start, as `pgtick.insert_jobs` would; returns their due times."""
    row = connection.execute(_FACTS, [list({job.task_id for job in jobs})]).fetchone()
    assert row is not None
    now, made_until, known = row
    keys = {task_id: int(key) for task_id, key, _ in known}
    priorities = {task_id: int(priority) for task_id, _, priority in known}
    ready = [job for job in jobs if job.expression is None and job.task_id in keys]
    dues = [job.starts_at(now) or now for job in ready]
    if any(due >= made_until for due in dues):
        ready = [job for job, due in zip(ready, dues, strict=True) if due < made_until]
        dues = [due for due in dues if due < made_until]
    ids, users = [job.job_id for job in ready], [job.user_id for job in ready]
    task_ids = [job.task_id for job in ready]
    with connection.cursor().copy(_COPY_JOBS) as copy:
        copy.write(
            lines(
                ids,
                users,
                task_ids,
                [job.schedule_type for job in ready],
                [job.timezone for job in ready],
                [job.run_at or now for job in ready],
                [job.parameters for job in ready],
                [job.max_retries for job in ready],
                [job.timeout_s for job in ready],
                [job.policies for job in ready],
                [job.trace for job in ready],
            )
        )
    with connection.cursor().copy(_COPY_PENDING) as copy:
        copy.write(
            lines(
                ids,
                [job.runs_at(now) for job in ready],
                dues,
                users,
                [keys[task_id] for task_id in task_ids],
                [priorities[task_id] for task_id in task_ids],
                [job.overlap for job in ready],
                [job.expires_at for job in ready],
            )
        )
    return dict(zip(ids, dues, strict=True))


def created_at(connection: Connection, job_id: str) -> datetime | None:
    """When a job was written, or None if it was not."""
    row = connection.execute("select created_at from pgtick.jobs where job_id = %s", [job_id]).fetchone()
    return row[0] if row else None


def anchor(connection: Connection, job_id: str) -> datetime | None:
    """What the intervals of a recurring job count from; None when it does not recur, or is no more."""
    row = connection.execute("select anchor_at from pgtick.schedules where job_id = %s", [job_id]).fetchone()
    return row[0] if row else None


def owner(connection: Connection, job_id: str) -> str | None:
    """Whose job it is, or None if there is none."""
    row = connection.execute("select user_id from pgtick.jobs where job_id = %s", [job_id]).fetchone()
    return row[0] if row else None


def get(connection: Connection, job_id: str) -> dict[str, Any] | None:
    """A job with its schedule, as columns; None if there is none."""
    return connection.cursor(row_factory=dict_row).execute(_GET, [job_id]).fetchone()


def _columns(jobs: Sequence[NewJob], zone_version: str) -> list[str]:
    run_ats = arrays.times([job.run_at for job in jobs])
    spread = any(job.due_at is not None for job in jobs)
    return [
        arrays.plain([job.job_id for job in jobs]),
        arrays.texts([job.user_id for job in jobs]),
        arrays.texts([job.task_id for job in jobs]),
        arrays.plain([job.schedule_type for job in jobs]),
        arrays.texts([job.expression for job in jobs]),
        arrays.texts([job.timezone for job in jobs]),
        run_ats,
        arrays.times([job.due_at or job.run_at for job in jobs]) if spread else run_ats,
        arrays.texts([job.parameters for job in jobs]),
        arrays.plain([job.max_retries for job in jobs]),
        arrays.plain([job.timeout_s for job in jobs]),
        arrays.texts([job.policies for job in jobs]),
        arrays.plain([job.overlap for job in jobs]),
        arrays.times([job.expires_at for job in jobs]),
        arrays.times([job.anchor_at for job in jobs]),
        zone_version,
        arrays.texts([job.trace for job in jobs]),
    ]
