"""Workers: list, drain. `top`: what goes on, live."""

from __future__ import annotations

import getpass
import shutil
import sys
import time
from typing import Any

import click
import psycopg
from psycopg.rows import dict_row

from app.cli.output import json_option, show, table
from app.settings import Settings
from app.store import verbs
from app.store.connections import connect
from app.store.pool import Connection

_WORKERS = """
select w.worker_id, w.name, coalesce(s.state, w.state) as state, w.running, w.capacity,
       cardinality(w.task_keys) as tasks, w.queues, w.started_at, w.last_seen_at, w.version
from pgtick.workers w
left join pgtick.worker_status s using (worker_id)
where %(every)s or w.state in ('RUNNING', 'DRAINING')
order by w.worker_id
"""
_TOTALS = """
select (select count(*) from pgtick.running_executions where due_at <= now()) as running,
       (select count(*) from (select from pgtick.pending_executions
                              where due_at <= now() and due_at > now() - interval '7 days' limit 100000) as due)
           as waiting,
       (select count(*) from (select from pgtick.schedules where next_run_at is not null limit 100000) as s)
           as schedules,
       (select count(*) from pgtick.findings) as findings
"""
_LAST_MINUTES = """
select t.task_id, sum(s.started) as started, sum(s.completed) as completed, sum(s.retried) as retried,
       sum(s.failed) as failed, round(sum(s.run_ms) / greatest(sum(s.started), 1)) as mean_ms
from pgtick.execution_stats s
join pgtick.tasks t using (task_key)
where s.minute > now() - interval '6 minutes'
group by t.task_id
order by started desc
limit 15
"""


@click.group()
def workers() -> None:
    """Worker processes."""


@workers.command("list")
@click.option("--all", "every", is_flag=True, help="Those that are gone, too.")
@json_option
@click.pass_obj
def list_(settings: Settings, every: bool, as_json: bool) -> None:
    """List workers."""
    with connect(settings.database_url) as connection:
        rows = _rows(connection, _WORKERS, every=every)
    show(rows, ("worker_id", "name", "state", "running", "capacity", "tasks", "last_seen_at", "version"), as_json)


@workers.command()
@click.argument("worker")
@click.pass_obj
def drain(settings: Settings, worker: str) -> None:
    """Have a worker (id or name), or all of a host, finish what they run and end."""
    with connect(settings.database_url) as connection, verbs.acting(connection, getpass.getuser()):
        draining = verbs.drain_worker(connection, worker)
    click.echo("1 worker is draining" if draining == 1 else f"{draining} workers are draining")


@click.command()
@click.option("--seconds", default=2.0, show_default=True, help="Pause between looks.")
@click.option("--once", is_flag=True, help="One look, and no clearing of the screen.")
@click.pass_obj
def top(settings: Settings, seconds: float, once: bool) -> None:
    """Show what goes on, live, until Ctrl-C."""
    try:
        while True:
            lines = _look(settings)
            if once:
                click.echo("\n".join(lines))
                return
            size = shutil.get_terminal_size()
            shown = [line[: size.columns] for line in lines[: size.lines - 1]]
            # Over what was there, then the rest is cleared: nothing flickers.
            sys.stdout.write("\x1b[H" + "\x1b[K\n".join(shown) + "\x1b[K\x1b[J")
            sys.stdout.flush()
            time.sleep(max(0.1, seconds))
    except KeyboardInterrupt:
        click.echo()


def _look(settings: Settings) -> list[str]:
    try:
        with connect(settings.database_url) as connection:
            (totals,) = _rows(connection, _TOTALS)
            busiest = _rows(connection, _LAST_MINUTES)
            alive = _rows(connection, _WORKERS, every=False)
            findings = [row["sentence"] for row in _rows(connection, "select sentence from pgtick.findings limit 5")]
    except psycopg.OperationalError as error:
        return [f"{time.strftime('%H:%M:%S')}  the database is not available: {str(error).splitlines()[0]}"]
    said = "  ".join(f"{name} {value}" for name, value in totals.items())
    return [
        f"{time.strftime('%H:%M:%S')}  {said}",
        "",
        *table(alive, ("worker_id", "name", "state", "running", "capacity", "last_seen_at")),
        "",
        "the last 5 minutes",
        *table(busiest, ("task_id", "started", "completed", "retried", "failed", "mean_ms")),
        *(["", *findings] if findings else []),
    ]


def _rows(connection: Connection, query: str, **values: Any) -> list[dict[str, Any]]:
    return connection.cursor(row_factory=dict_row).execute(query, values).fetchall()


commands = [workers, top]
