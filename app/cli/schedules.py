"""Schedules: preview one that is not saved, forecast all that are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from app.cli.jobs import show_runs
from app.cli.output import refuse
from app.cli.reading import json_of
from app.settings import Settings
from app.store import monitoring
from app.store.connections import connect, time_of


@click.group()
def schedules() -> None:
    """What schedules mean."""


@schedules.command()
@click.argument("expression")
@click.option("--timezone", help="A name such as Europe/Berlin; without it, UTC.")
@click.option("--after", help="Runs after this time (ISO 8601 with an offset) instead of now.")
@click.option("--policies", help='JSON, for example {"exclude": ["2026-12-25"]}.')
@click.option("-n", default=10, show_default=True)
def preview(expression: str, policies: str | None, **given: Any) -> None:
    """Show the next runs of an expression or a date, without a database."""
    from app.api.schedules import preview_of

    body = {"schedule": expression, **{name: value for name, value in given.items() if value is not None}}
    body |= {} if policies is None else {"policies": json_of(policies, "--policies")}
    found = preview_of(body, datetime.now(UTC))
    if isinstance(found, list):
        refuse(found)
    show_runs(found)


@schedules.command()
@click.option("--most", default=20, show_default=True, help="So many of the busiest minutes.")
@click.pass_obj
def forecast(settings: Settings, most: int) -> None:
    """Show the busiest minutes of the coming 24 hours."""
    from app.api.schedules import MOST_GRIDS, forecast_of

    with connect(settings.database_url) as connection:
        found = forecast_of(monitoring.grids(connection, None, MOST_GRIDS), time_of(connection))
    start = datetime.fromisoformat(found["start"])
    busiest = sorted(range(len(found["minutes"])), key=lambda minute: (-found["minutes"][minute], minute))
    for minute in busiest[:most]:
        if count := found["minutes"][minute]:
            click.echo(f"{start + timedelta(minutes=minute):%Y-%m-%d %H:%MZ}  {count}")
    click.echo(f"{found['total']} starts in 24 hours", err=True)


commands = [schedules]
