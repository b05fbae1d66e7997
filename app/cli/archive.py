"""The archive: run, list, query, restore."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from app.archive.archivist import Archivist
from app.archive.files import Archive, ArchiveError
from app.cli.reading import NAME
from app.domain.execution import FINAL
from app.settings import Settings
from app.store.connections import connect


@click.group()
def archive() -> None:
    """What is past retention: executions and jobs as compressed CSV in PGTICK_ARCHIVE."""


@archive.command()
@click.pass_obj
def run(settings: Settings) -> None:
    """Archive and drop what is past retention now; workers do the same by themselves."""
    click.echo(f"{Archivist(settings).run()} partitions are gone")


@archive.command("list")
@click.option("--check", is_flag=True, help="Read every file and compare it with its manifest.")
@click.pass_obj
def list_(settings: Settings, check: bool) -> None:
    """List the files of the archive, oldest first."""
    kept = _archive(settings)
    for manifest in kept.manifests():
        if check:
            kept.check(manifest)
        click.echo(f"{manifest.name}  {manifest.from_at} to {manifest.until_at}  {manifest.rows} rows")


@archive.command()
@click.option("--jobs", is_flag=True, help="Look for jobs instead of executions.")
@click.option("--job", "job_id", type=click.UUID, help="Of this job only.")
@click.option("--user", "user_id", type=NAME, help="Of this user only.")
@click.option("--status", type=click.Choice(FINAL, case_sensitive=False), help="In this status only.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]), help="From this time (UTC) on.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]), help="Before this time (UTC).")
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True)
@click.pass_obj
def query(
    settings: Settings,
    /,
    jobs: bool,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    **wanted: object,
) -> None:
    """Print archived executions as lines of JSON, without the database."""
    if jobs and wanted["status"]:
        raise click.BadParameter("is for executions, not for --jobs", param_hint="--status")
    if since and until and since >= until:
        raise click.BadParameter("must be later than --since", param_hint="--until")
    found = _archive(settings).query(
        "jobs" if jobs else "finished_executions",
        since=since and since.replace(tzinfo=UTC),
        until=until and until.replace(tzinfo=UTC),
        **{column: str(value) for column, value in wanted.items() if value is not None},
    )
    for row, _ in zip(found, range(limit), strict=False):
        click.echo(json.dumps(row))


@archive.command()
@click.argument("name")
@click.option("--schema", default="pgtick_archive", show_default=True, help="Schema to make the table in.")
@click.pass_obj
def restore(settings: Settings, name: str, schema: str) -> None:
    """Make a table from one file of the archive; NAME is one that `list` shows."""
    kept = _archive(settings)
    with connect(settings.database_url) as connection:
        rows = kept.restore(connection, name, schema)
    click.echo(f"{rows} rows are in {schema}.{name}")


def _archive(settings: Settings) -> Archive:
    if not settings.archive:
        raise ArchiveError("PGTICK_ARCHIVE: is not set")
    return Archive(settings.archive)


commands = [archive]
