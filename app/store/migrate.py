"""Brings the database's schema up to date, waiting for a server that is still starting and for locks of others."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import sqlalchemy.exc
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

import migrations
from app.events import emit
from app.store.connections import is_retryable


def config() -> Config:
    """Alembic's configuration; the address comes from DATABASE_URL in migrations/env.py."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return config


def migrate(patience_s: float = 120.0) -> None:
    """Upgrades to the newest version. Waits up to `patience_s` seconds for the server and for locks.

    Raises what the driver raised.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            command.upgrade(config(), "head")
            return
        except (sqlalchemy.exc.DBAPIError, psycopg.Error) as error:
            cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
            if cause is None or not is_retryable(cause) or time.monotonic() > deadline:
                raise cause or error from None
            emit("migration_waits", error=cause)
            time.sleep(1)


def newest() -> str:
    """The version that `migrate` brings a database to."""
    return ScriptDirectory.from_config(config()).get_current_head() or "none"
