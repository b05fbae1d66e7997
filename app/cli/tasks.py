"""Tasks: list, show, pause, resume."""

from __future__ import annotations

import getpass

import click

from app.cli.output import json_option, missing, show, show_one
from app.cli.reading import TEXT
from app.settings import Settings
from app.store import verbs
from app.store.connections import connect
from app.store.pool import Pool
from app.store.tasks import Tasks


@click.group()
def tasks() -> None:
    """What jobs can name."""


@tasks.command("list")
@json_option
@click.pass_obj
def list_(settings: Settings, as_json: bool) -> None:
    """List tasks; `served` are those that a live worker knows."""
    rows = _read(settings)
    columns = ("task_id", "kind", "queue", "priority", "max_retries", "timeout_s", "served", "paused_at", "description")
    show(rows, columns, as_json)


@tasks.command("show")
@click.argument("task_id")
@json_option
@click.pass_obj
def show_(settings: Settings, task_id: str, as_json: bool) -> None:
    """Show one task with its limits and the schema of its parameters."""
    for row in _read(settings, task_id):
        show_one(row, as_json)
        return
    missing("task", task_id)


@tasks.command()
@click.argument("task_id")
@click.option("--note", type=TEXT, help="Why; shown with the task.")
@click.pass_obj
def pause(settings: Settings, task_id: str, note: str | None) -> None:
    """Hold back all executions of a task; what runs goes on."""
    with connect(settings.database_url) as connection, verbs.acting(connection, getpass.getuser()):
        held = verbs.pause_task(connection, task_id, note)
    click.echo(f"paused; {held} executions that are due are held back")


@tasks.command()
@click.argument("task_id")
@click.pass_obj
def resume(settings: Settings, task_id: str) -> None:
    """Let a paused task go on; what has waited starts now."""
    with connect(settings.database_url) as connection, verbs.acting(connection, getpass.getuser()):
        click.echo("resumed" if verbs.resume_task(connection, task_id) else "it was not paused")


def _read(settings: Settings, task_id: str | None = None) -> list[dict[str, object]]:
    pool = Pool(settings.database_url, max_size=1)
    try:
        return Tasks(pool).all(task_id)
    finally:
        pool.close()


commands = [tasks]
