"""Running pgtick: migrate, check, api, worker."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import click
import psycopg

from app.archive.places import PlaceError, place
from app.errors import SettingsError
from app.settings import Settings
from app.store import migrate as migrations
from app.store.connections import connect


@click.command()
@click.option("--patience", default=120.0, show_default=True, help="Seconds to wait for the server and for locks.")
def migrate(patience: float) -> None:
    """Bring the database to the newest schema. Safe to run again, by several at once, and while jobs run."""
    migrations.migrate(patience)


@click.command()
@click.pass_obj
def api(settings: Settings) -> None:
    """Serve the REST API and the dashboard with gunicorn."""
    if faults := settings.serving_faults():
        raise SettingsError(faults)
    arguments = [sys.executable, "-m", "gunicorn", "--config", "python:app.gunicorn_conf", "app.wsgi:app"]
    os.execv(arguments[0], arguments)


@click.command()
@click.pass_obj
def worker(settings: Settings) -> None:
    """Run one worker process."""
    arguments = [sys.executable, "-m", "workers"]
    os.execv(arguments[0], arguments)


@click.command()
@click.pass_obj
def check(settings: Settings) -> None:
    """Check settings, database, schema, permissions and clock; exit status 1 when something would not work.

    Misspelt settings are warned of."""
    faults = [("api", fault) for fault in settings.api_faults()]
    try:
        place(settings.archive)
    except PlaceError as error:
        faults.append(("archive", str(error)))
    for name, fault in faults:
        click.echo(f"FAIL  {name:<12}{fault}")
    for variable, rule in settings.unknown():
        click.echo(f"warn  {'settings':<12}{variable} {rule}")
    failed = bool(faults)
    with connect(settings.database_url) as connection:
        for name, look in CHECKS.items():
            fine, finding = look(connection)
            failed = failed or not fine
            click.echo(f"{'ok  ' if fine else 'FAIL'}  {name:<12}{finding}")
    if failed:
        sys.exit(1)


Finding = tuple[bool, str]


def _server_version(connection: psycopg.Connection[Any]) -> Finding:
    version = connection.info.server_version // 10_000
    return version >= 15, f"PostgreSQL {version}" + ("" if version >= 15 else ": 15 or newer is needed")


def _schema(connection: psycopg.Connection[Any]) -> Finding:
    try:
        row = connection.execute("select version_num from pgtick.alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    newest = migrations.newest()
    current = row[0] if row else "none"
    return current == newest, f"version {current}" + (
        "" if current == newest else f", not {newest}: run pgtick migrate"
    )


def _permissions(connection: psycopg.Connection[Any]) -> Finding:
    row = connection.execute(
        """
        select string_agg(c.relname, ', ' order by c.relname)
        from pg_class c
        where c.relnamespace = to_regnamespace('pgtick') and c.relkind in ('r', 'p') and not c.relispartition
          and c.relname like '%executions' and not has_table_privilege(c.oid, 'select, insert, update, delete')
        """
    ).fetchone()
    missing = row[0] if row else None
    return missing is None, "may read and write jobs" if missing is None else f"may not write {missing}"


def _partitions(connection: psycopg.Connection[Any]) -> Finding:
    try:
        row = connection.execute(
            "select extract(epoch from min(until_at) - now())::float8 / 3600 from pgtick.partition_windows"
        ).fetchone()
    except psycopg.errors.UndefinedTable:
        return False, "no schema"
    hours = row[0] if row and row[0] is not None else 0.0
    return hours > 1, f"made for the next {hours:.0f} hours"


def _clock(connection: psycopg.Connection[Any]) -> Finding:
    row = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
    assert row is not None
    seconds = row[0] - time.time()
    # Only the database's clock counts; a difference is worth knowing when reading logs.
    return True, f"the database's clock is {abs(seconds):.3f} s {'ahead of' if seconds > 0 else 'behind'} this host's"


CHECKS: dict[str, Callable[[psycopg.Connection[Any]], Finding]] = {
    "server": _server_version,
    "schema": _schema,
    "permissions": _permissions,
    "partitions": _partitions,
    "clock": _clock,
}

commands = [migrate, check, api, worker]
