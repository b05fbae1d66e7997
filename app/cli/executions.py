"""Executions: list, show, retry, cancel."""

from __future__ import annotations

import getpass
import json
import sys
from typing import Any

import click

from app.cli.listing import filter_of, filter_options
from app.cli.output import json_option, missing, show, show_one
from app.domain.execution import ExecutionId
from app.settings import Settings
from app.store import executions as store
from app.store import monitoring, verbs
from app.store.connections import connect, time_of
from app.store.search import Search
from app.store.users import Users

COLUMNS = ("execution_id", "task_id", "user_id", "status", "attempt", "scheduled_at", "started_at", "error")


@click.group()
def executions() -> None:
    """What happened, and what is about to."""


@executions.command("list")
@filter_options
@click.option("--coming", is_flag=True, help="Those whose time has not come yet, too.")
@json_option
@click.pass_obj
def list_(settings: Settings, /, as_json: bool, limit: int, coming: bool, **given: Any) -> None:
    """List executions, newest first: those whose time has come, unless --coming, --status or --until ask for others."""
    with connect(settings.database_url) as connection:
        now = time_of(connection)
        wanted = filter_of(connection, given)
        if not (coming or wanted.statuses or wanted.end or (wanted.start and wanted.start > now)):
            wanted = wanted._replace(end=now)
        search = Search(connection, wanted, now, Users())
        rows = search.page(None, limit)
        while search.stopped is not None and len(rows) < limit:
            rows += search.page(search.stopped, limit - len(rows))
        names = dict(connection.execute("select task_key, task_id from pgtick.tasks").fetchall())
    show([_shown(row | {"task_id": names.get(row["task_key"])}) for row in rows], COLUMNS, as_json)


@executions.command("show")
@click.argument("execution_id")
@json_option
@click.pass_obj
def show_(settings: Settings, execution_id: str, as_json: bool) -> None:
    """Show one execution, and in a sentence how it stands."""
    known = _known(execution_id)
    with connect(settings.database_url) as connection:
        row = store.get(connection, known)
        said = monitoring.explain(connection, execution_id)
    if row is None:
        missing("execution", execution_id)
    show_one(_shown(row) | {"explanation": said}, as_json)


@executions.command()
@click.argument("execution_id")
@click.pass_obj
def retry(settings: Settings, execution_id: str) -> None:
    """Run one that is over once more; prints the id of the new one."""
    known = _known(execution_id)
    with connect(settings.database_url) as connection, verbs.acting(connection, getpass.getuser()):
        click.echo(verbs.rerun(connection, known))


@executions.command()
@click.argument("execution_id")
@click.pass_obj
def cancel(settings: Settings, execution_id: str) -> None:
    """Cancel one; if it runs, its worker is told to stop it."""
    known = _known(execution_id)
    with connect(settings.database_url) as connection, verbs.acting(connection, getpass.getuser()):
        status = verbs.cancel_execution(connection, known)
    if status is None:
        missing("execution", execution_id)
    click.echo("it is being stopped" if status == "IN_PROGRESS" else f"it is {status}")
    if status not in ("CANCELLED", "IN_PROGRESS"):
        sys.exit(1)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Identifying members first, JSON as JSON."""
    shown = {"execution_id": str(ExecutionId(row["scheduled_at"], row["job_id"]))}
    shown |= {name: value for name, value in row.items() if name != "task_key"}
    for name in ("errors", "result", "progress"):
        if isinstance(shown.get(name), str):
            shown[name] = json.loads(shown[name])
    return shown


def _known(execution_id: str) -> ExecutionId:
    known = ExecutionId.parse(execution_id)
    if known is None:
        raise click.BadParameter("is no id of an execution: <scheduled_at in µs>-<job_id>", param_hint="EXECUTION_ID")
    return known


commands = [executions]
