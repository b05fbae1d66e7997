"""Tasks: list, show."""

from __future__ import annotations

import click

from app.cli.output import json_option, missing, show, show_one
from app.settings import Settings
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
    show(rows, ("task_id", "kind", "queue", "priority", "max_retries", "timeout_s", "served", "description"), as_json)


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


def _read(settings: Settings, task_id: str | None = None) -> list[dict[str, object]]:
    pool = Pool(settings.database_url, max_size=1)
    try:
        return Tasks(pool).all(task_id)
    finally:
        pool.close()


commands = [tasks]
