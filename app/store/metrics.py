"""The metrics of the whole installation, read from the small tables and the hours around now."""

from __future__ import annotations

from app.metrics import Page
from app.store.pool import Connection

QUEUES = """
select queue, depth, late, coalesce(extract(epoch from oldest_age), 0)::float8, workers
from pgtick.queue_status
"""

SCHEDULES = """
select 'active', count(*) filter (where paused_at is null and problem is null and next_run_at is not null),
       'paused', count(*) filter (where paused_at is not null and problem is null),
       'broken', count(*) filter (where problem is not null),
       coalesce(extract(epoch from now() - min(next_run_at) filter (where paused_at is null and problem is null)),
                0)::float8
from pgtick.schedules
"""

WORKERS = """
select count(*), coalesce(sum(capacity), 0), (select count(*) from pgtick.running_executions where due_at <= now())
from pgtick.workers
where state = 'RUNNING' and pgtick.is_live(last_seen_at)
"""

RUNWAY = "select parent, extract(epoch from until_at - now())::float8 from pgtick.partition_windows"

FINDINGS = "select kind, count(*) from pgtick.findings group by kind"


def read(connection: Connection) -> Page:
    """A page with all of them."""
    page = Page()
    for queue, depth, late, oldest, workers in connection.execute(QUEUES).fetchall():
        page.set("pgtick_queue_depth", depth, queue)
        page.set("pgtick_queue_late", late, queue)
        page.set("pgtick_queue_oldest_seconds", oldest, queue)
        page.set("pgtick_queue_workers", workers, queue)
    for *states, lag in connection.execute(SCHEDULES).fetchall():
        for state, count in zip(states[::2], states[1::2], strict=True):
            page.set("pgtick_schedules", count, state)
        page.set("pgtick_schedule_lag_seconds", max(0.0, lag))
    for workers, capacity, running in connection.execute(WORKERS).fetchall():
        page.set("pgtick_workers", workers)
        page.set("pgtick_worker_capacity", capacity)
        page.set("pgtick_executions_running", running)
    for table, runway in connection.execute(RUNWAY).fetchall():
        page.set("pgtick_partition_runway_seconds", runway, table)
    for kind, count in connection.execute(FINDINGS).fetchall():
        page.set("pgtick_findings", count, kind)
    return page
