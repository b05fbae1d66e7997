"""Runs migrations: under one lock, with short waits for others' locks, then rebuilds the views and functions of ops/.

A second migrator waits for the first and finds nothing to do. A lock that is not had within 2 s fails the whole run,
which `app.store.migrate` tries again: queries must not queue behind a waiting migration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from alembic import context
from sqlalchemy import Connection, text

from app.store.connections import PLAIN_PATH, engine
from app.store.tables import metadata

LOCK = 7_067_846  # any number, the same in every migrator
OPS = Path(__file__).parent / "ops"


def include_name(name: str | None, kind: str, parents: Any) -> bool:
    """Partitions come and go at run time: only the tables of the metadata are compared."""
    if kind == "schema":
        return name == "pgtick"
    if kind == "table":
        return f"pgtick.{name}" in metadata.tables
    return True


def run(connection: Connection) -> None:
    connection.execute(text(PLAIN_PATH))
    connection.execute(text("set local statement_timeout = 0"))
    connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    connection.execute(text("set local lock_timeout = '2s'"))
    connection.execute(text("create schema if not exists pgtick"))
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table_schema="pgtick",
        include_schemas=True,
        include_name=include_name,
        compare_server_default=False,
    )
    context.run_migrations()
    migrating = "destination_rev" in context._proxy.context_opts  # type: ignore[attr-defined]
    # They speak of the newest tables alone.
    if migrating and set(context.get_context().get_current_heads()) == set(context.script.get_heads()):
        rebuild_ops(connection)


def rebuild_ops(connection: Connection) -> None:
    # Through the driver itself: the files are SQL as psql would read it, with no placeholders.
    driver: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    for file in sorted(OPS.glob("*.sql")):
        driver.execute(file.read_bytes())
    # Enough to begin with; workers make the rest of their runway.
    driver.execute("select pgtick.ensure_partitions(runway => '4 hours')")


with engine().connect() as opened, opened.begin():
    run(opened)
