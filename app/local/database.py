"""The database of this checkout: that of DATABASE_URL, or an embedded one, which runs while it is needed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql

from app.embedded.cluster import Cluster
from app.embedded.lock import Lock
from app.local import LocalError, say

CHECKOUT = Path(__file__).resolve().parents[2]
STATE = CHECKOUT / ".pgtick"  # git ignores it
DATABASE = "pgtick"


@contextlib.contextmanager
def database() -> Iterator[str]:
    """The address of the database: DATABASE_URL's, or the embedded one's, which runs as long as the block."""
    if given := os.environ.get("DATABASE_URL"):
        say("Using the PostgreSQL of DATABASE_URL")
        yield given
        return
    STATE.mkdir(exist_ok=True)
    lock = Lock.take(STATE / "lock")
    if lock is None:
        raise LocalError("This checkout's database is in use: another `make run`, `make psql` or `make shell` goes on.")
    cluster = Cluster.at(STATE / "postgres")
    say(f"Starting PostgreSQL from {cluster.bindir}, data in {cluster.folder}")
    try:
        cluster.start()
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            known = connection.execute("select from pg_database where datname = %s", [DATABASE]).fetchone()
            if known is None:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
        say(f"PostgreSQL listens on 127.0.0.1:{cluster.port}")
        yield cluster.dsn(DATABASE)
    finally:
        say("Stopping PostgreSQL")
        cluster.stop()
        lock.release()


def running() -> str | None:
    """The address of a database that is there already: DATABASE_URL's, or the embedded one's while it runs."""
    if given := os.environ.get("DATABASE_URL"):
        return given
    if not (STATE / "postgres").exists():
        return None
    cluster = Cluster.at(STATE / "postgres")
    return cluster.dsn(DATABASE) if cluster.is_running() else None


def url() -> None:
    """Prints the address of the database, password and all, for other programs to use."""
    address = running()
    if address is None:
        raise LocalError("This checkout's database does not run: start it with `make run`.")
    print(address)


def wipe() -> None:
    """Deletes the embedded database."""
    if not STATE.exists():
        return
    if Lock.take(STATE / "lock") is None:
        raise LocalError("The database is in use: stop `make run` first.")
    Cluster.at(STATE / "postgres").destroy()
    shutil.rmtree(STATE)
    say("The database is deleted")
