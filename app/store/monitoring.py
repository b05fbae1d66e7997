"""What the dashboard shows of the whole installation: read from small tables, statistics and views, never from history.

Listings of executions and jobs are in `search` and `job_search`. `user_id` limits what names jobs to one user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from app.store.pool import Connection

Row = dict[str, Any]

BUCKETS = 15
"""Of the lateness histogram, the one without an upper bound included."""
MOST_COUNTED = 20_001
"""Due executions that are counted; beyond it there are "more than 20,000"."""
MOST_WAITING = 200_000
"""Pending executions that a forecast looks at; more are counted as so many."""

_SUMMED = ", ".join(f"coalesce(sum(lateness[{i}]), 0)" for i in range(1, BUCKETS + 1))

# Adding up columns costs a fifth of unnesting every histogram, as the view pgtick.lateness does for a whole day.
_MINUTES = f"""
select minute, started, failed, retried, within, pgtick.lateness_quantile(buckets, 0.5) as p50_ms,
       pgtick.lateness_quantile(buckets, 0.99) as p99_ms
from (
    select minute, sum(started)::bigint as started, sum(failed)::bigint as failed, sum(retried)::bigint as retried,
           array[{_SUMMED}]::bigint[] as buckets,
           (select sum(n) from unnest(array[{_SUMMED}]) with ordinality as b (n, i)
            where i <= array_position(pgtick.lateness_bounds(), 2000))::bigint as within
    from pgtick.execution_stats
    where minute > date_trunc('minute', now()) - %(minutes)s * interval '1 minute' and minute <= now()
    group by minute
) as counted
order by minute
"""

# As pgtick.overview, but counting no more than it takes to see that there is a backlog, and without unnesting.
_STATE = f"""
select now() as at, due.waiting, due.late, recent.starts_per_s, recent.p50_ms, recent.p99_ms,
       (select count(*) from pgtick.running_executions where due_at <= now()) as running, alive.workers, alive.capacity,
       (select count(*) from pgtick.tasks where paused_at is not null) as paused_tasks
from (
    select count(*) as waiting,
           count(*) filter (where due_at < now() - interval '2 seconds' and priority between 1 and 4) as late
    from (select due_at, priority from pgtick.pending_executions where due_at <= now() limit {MOST_COUNTED}) as counted
) as due
cross join (
    select coalesce(sum(started) filter (where minute = date_trunc('minute', now()) - interval '1 minute'), 0) / 60.0
               as starts_per_s,
           pgtick.lateness_quantile(array[{_SUMMED}]::bigint[], 0.5) as p50_ms,
           pgtick.lateness_quantile(array[{_SUMMED}]::bigint[], 0.99) as p99_ms
    from pgtick.execution_stats
    where minute > now() - interval '5 minutes'
) as recent
cross join (
    select count(*) as workers, coalesce(sum(capacity), 0)::bigint as capacity
    from pgtick.workers
    where state = 'RUNNING' and pgtick.is_live(last_seen_at)
) as alive
"""

# The oldest of each priority by the index that claims go by: a backlog of millions is not sorted.
_LATE = """
select pgtick.execution_id(p.scheduled_at, p.job_id) as execution_id, p.job_id::text, t.task_id, p.user_id, p.due_at,
       now() - p.due_at as late_by, p.attempt
from generate_series(1, 4) as level (priority)
cross join lateral (
    select * from pgtick.pending_executions e
    where e.priority = level.priority and e.due_at < now() - interval '2 seconds'
      and (%(user_id)s::text is null or e.user_id = %(user_id)s)
    order by e.due_at
    limit %(n)s
) as p
left join pgtick.tasks t using (task_key)
order by p.due_at
limit %(n)s
"""

# What is due next by the index that claims go by, no more than so much of it; what limits and pauses hold back, too.
_RETRYING = f"""
select count(*) filter (where near.attempt > 0) as executions, count(*) >= {MOST_COUNTED} as more
from (
    select p.attempt
    from generate_series(1, 8) as level (priority)
    cross join lateral (
        select e.attempt from pgtick.pending_executions e
        where e.priority = level.priority and e.due_at > now() - interval '1 hour'
        order by e.due_at
        limit {MOST_COUNTED}
    ) as p
    limit {MOST_COUNTED}
) as near
"""

_COMING = """
select date_bin('1 hour', due_at, '2000-01-01 00:00Z') as hour, count(*) as executions
from (
    select due_at from pgtick.pending_executions
    where due_at > now() and due_at < %(until)s and (%(user_id)s::text is null or user_id = %(user_id)s)
    limit %(most)s
) as coming
group by 1
union all
select date_bin('1 hour', next_run_at, '2000-01-01 00:00Z'), count(*)
from pgtick.schedules
where expression is null and paused_at is null and cancelled_at is null and problem is null
  and next_run_at > now() and next_run_at < %(until)s and (%(user_id)s::text is null or user_id = %(user_id)s)
group by 1
"""

_GRIDS = """
select expression, timezone, count(*) from pgtick.schedules
where expression is not null and next_run_at is not null and paused_at is null and cancelled_at is null
  and problem is null and (%(user_id)s::text is null or user_id = %(user_id)s)
group by 1, 2
order by 3 desc, 1, 2
limit %(n)s
"""

_NEXT = """
select scheduled_at, job::text as job_id, n.task_id, state from pgtick.next_runs(null, %(n)s) n
"""

_SCHEDULES = """
select job_id::text, task_id, user_id, schedule, timezone, state, next_run_at, note, runs
from pgtick.schedule_status
where (%(user_id)s::text is null or user_id = %(user_id)s)
  and state = coalesce(%(state)s, state) and state <> 'CANCELLED'
  and (%(after_at)s::timestamptz is null or (next_run_at, job_id) > (%(after_at)s, %(after_id)s::uuid))
order by next_run_at, job_id
limit %(n)s
"""

_STATES = """
select count(*) filter (where paused_at is not null and cancelled_at is null and problem is null) as paused,
       count(*) filter (where problem is not null) as broken, count(*) as standing
from pgtick.schedules
where %(user_id)s::text is null or user_id = %(user_id)s
"""

_TASK_HOUR = f"""
select task_key, sum(started)::bigint as started, sum(completed)::bigint as completed, sum(failed)::bigint as failed,
       sum(retried)::bigint as retried, sum(run_ms)::float8 / 1000 / nullif(sum(started), 0) as mean_s,
       pgtick.lateness_quantile(array[{_SUMMED}]::bigint[], 0.99) as p99_ms
from pgtick.execution_stats
where minute > now() - interval '1 hour'
group by task_key
"""

# Sizes as VACUUM and ANALYZE last saw them: asking the file system for 3,000 files takes 150 ms.
_PARTITIONS = """
select parent.relname::text as parent,
       case parent.relname when 'jobs' then pgtick.uuid7_time(low::uuid) else low::timestamptz end as from_at,
       case parent.relname when 'jobs' then pgtick.uuid7_time(high::uuid) else high::timestamptz end as until_at,
       greatest(child.reltuples, 0)::bigint as estimated_rows,
       case when child.relpages > 0 then (child.relpages + indexes.pages) * 8192
            else pg_relation_size(child.oid) end as bytes
from pg_inherits i
join pg_class parent on parent.oid = i.inhparent
join pg_class child on child.oid = i.inhrelid
cross join lateral (
    select coalesce(sum(c.relpages), 0)::bigint as pages from pg_index x join pg_class c on c.oid = x.indexrelid
    where x.indrelid = child.oid
) as indexes
cross join lateral regexp_match(
    pg_get_expr(child.relpartbound, child.oid), $re$FROM \\('([^']+)'\\) TO \\('([^']+)'\\)$re$
) as bound
cross join lateral (select bound[1] as low, bound[2] as high) as bounds
where parent.relnamespace = 'pgtick'::regnamespace and parent.relkind = 'p'
order by 1, 2
"""

_SNAPSHOTS = """
select pid, usename, application_name, state, now() - xact_start as open_for, left(query, 200) as query,
       age(backend_xmin) as held_back
from pg_stat_activity
where backend_xmin is not null and pid <> pg_backend_pid() and xact_start < now() - interval '10 seconds'
  and datname = current_database()
order by xact_start
limit 10
"""

_SERVER = """
select current_setting('server_version') as version, pg_postmaster_start_time() as started_at,
       (select sum(relpages) * 8192 from pg_class where relkind in ('r', 'i', 't', 'm'))::bigint as bytes,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
       current_setting('max_connections')::int as max_connections
"""


def state(connection: Connection) -> Row:
    """How it goes at this moment. `waiting` and `late` are at most MOST_COUNTED."""
    return _rows(connection, _STATE)[0]


def findings(connection: Connection) -> list[Row]:
    return _rows(
        connection, "select kind, subject, sentence, found_at from pgtick.findings order by found_at desc limit 50"
    )


def stuck(connection: Connection) -> list[Row]:
    """What will not go on by itself, by kind and task."""
    return _rows(
        connection, "select kind, task_id, executions, since, job_id::text, sentence from pgtick.stuck limit 50"
    )


def minutes(connection: Connection, span: int) -> list[Row]:
    """Starts, failures and lateness of each of the last `span` minutes in which anything started."""
    return _rows(connection, _MINUTES, minutes=span)


def late(connection: Connection, user_id: str | None, limit: int) -> list[Row]:
    """What is due and not started, the latest first."""
    return _rows(connection, _LATE, user_id=user_id, n=limit)


def retrying(connection: Connection) -> Row:
    """How many executions wait for another attempt; of more than MOST_COUNTED pending only the next are looked at."""
    return _rows(connection, _RETRYING)[0]


def coming(connection: Connection, user_id: str | None, until: datetime) -> dict[datetime, int]:
    """Executions that are pending, and dates far ahead, by the hour they are due."""
    hours: dict[datetime, int] = {}
    for row in _rows(connection, _COMING, user_id=user_id, until=until, most=MOST_WAITING):
        hours[row["hour"]] = hours.get(row["hour"], 0) + row["executions"]
    return hours


def grids(connection: Connection, user_id: str | None, limit: int) -> list[tuple[str, str, int]]:
    """The active expressions with their zones, and how many jobs have each; the most common first."""
    return connection.execute(_GRIDS, {"user_id": user_id, "n": limit}).fetchall()


def next_runs(connection: Connection, limit: int) -> list[Row]:
    """What starts next, of all users, the earliest first."""
    return _rows(connection, _NEXT, n=limit)


def schedules(
    connection: Connection, user_id: str | None, state: str | None, after: tuple[datetime, str] | None, limit: int
) -> list[Row]:
    """Recurring jobs and dates far ahead, the next first, after the place of the last one seen."""
    after_at, after_id = after or (None, None)
    return _rows(connection, _SCHEDULES, user_id=user_id, state=state, after_at=after_at, after_id=after_id, n=limit)


def schedule_states(connection: Connection, user_id: str | None) -> Row:
    return _rows(connection, _STATES, user_id=user_id)[0]


def tasks_last_hour(connection: Connection) -> dict[int, Row]:
    """Counts of the last hour by task_key."""
    return {row["task_key"]: row for row in _rows(connection, _TASK_HOUR)}


def queues(connection: Connection) -> list[Row]:
    """The rows of pgtick.queue_status."""
    return _rows(connection, "select * from pgtick.queue_status order by queue")


def workers(connection: Connection) -> list[Row]:
    """The rows of pgtick.worker_status, 500 at most."""
    return _rows(connection, "select * from pgtick.worker_status order by state, name limit 500")


def running(connection: Connection, user_id: str | None, limit: int) -> list[Row]:
    """What workers hold, the longest first."""
    query = """
        select execution_id, job_id::text, task_id, user_id, attempt, worker, worker_id, doing, running_for, lease_left,
               progress::text as progress, losses
        from pgtick.running
        where %(user_id)s::text is null or user_id = %(user_id)s
        order by running_for desc
        limit %(n)s
    """
    return _rows(connection, query, user_id=user_id, n=limit)


def partitions(connection: Connection) -> list[Row]:
    """Every partition: from when to when it is, its rows and bytes as estimated."""
    return _rows(connection, _PARTITIONS)


def old_snapshots(connection: Connection) -> list[Row]:
    """Transactions open for more than 10 s: they keep VACUUM from removing what is over."""
    return _rows(connection, _SNAPSHOTS)


def server(connection: Connection) -> Row:
    """What PostgreSQL says of itself: version, start, size, connections."""
    return _rows(connection, _SERVER)[0]


def explain(connection: Connection, some_id: str) -> str | None:
    """Why it is not running, in a sentence; an execution's id or a job's."""
    row = connection.execute("select pgtick.explain(%s)", [some_id]).fetchone()
    return row[0] if row else None


def worker_names(connection: Connection, worker_ids: Sequence[int]) -> dict[int, str]:
    query = "select worker_id, name from pgtick.workers where worker_id = any (%s)"
    return dict(connection.execute(query, [list(worker_ids)]).fetchall())


def _rows(connection: Connection, query: str, **values: Any) -> list[Row]:
    return connection.cursor(row_factory=dict_row).execute(query, values or None, prepare=False).fetchall()
