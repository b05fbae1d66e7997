"""Options that listings of jobs and of executions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from app.cli.reading import NAME, TEXT, instant
from app.domain.execution import STATUSES
from app.domain.job import SCHEDULE_TYPES
from app.store.pool import Connection
from app.store.search import Filter

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--user", "user_id", type=NAME, help="Of this user only."),
    click.option("--task", "task_id", type=TEXT, help="Of this task only."),
    click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice(STATUSES, case_sensitive=False),
        help="May be repeated.",
    ),
    click.option("--since", type=TEXT, help="Scheduled at this time (ISO 8601 with an offset) or later."),
    click.option("--until", type=TEXT, help="Scheduled before this time."),
    click.option("--error", type=TEXT, help="With this in its error."),
    click.option("--type", "kind", type=click.Choice(SCHEDULE_TYPES, case_sensitive=False), help="Kind of schedule."),
    click.option("--oldest-first", is_flag=True),
    click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True),
)


def filter_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filter_of(connection: Connection, given: dict[str, Any]) -> Filter:
    """The filter that the options say; raises BadParameter for a task that is not there, and for no time at all."""
    task = None
    if given["task_id"] is not None:
        row = connection.execute(
            "select task_id, task_key from pgtick.tasks where task_id = %s", [given["task_id"]]
        ).fetchone()
        if row is None:
            raise click.BadParameter(f"no task {given['task_id']!r} is registered", param_hint="--task")
        task = (row[0], row[1])
    start = given["since"] and instant(given["since"], "--since")
    end = given["until"] and instant(given["until"], "--until")
    if start and end and start >= end:
        raise click.BadParameter("must be later than --since", param_hint="--until")
    return Filter(
        user_id=given["user_id"],
        task=task,
        statuses=frozenset(given["statuses"]) or None,
        start=start,
        end=end,
        kind=given["kind"],
        error=given["error"] and given["error"].lower(),
        oldest_first=given["oldest_first"],
    )
