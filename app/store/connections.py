"""Connections to PostgreSQL: how every process opens one, and which errors of one pass by themselves.

The defaults below notice a dead or cut-off server within seconds and follow a failover when DATABASE_URL names several
hosts; each can be overridden in DATABASE_URL.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.errors import SettingsError

if TYPE_CHECKING:
    from sqlalchemy import Engine

DEFAULTS = {
    "connect_timeout": "2",
    "target_session_attrs": "read-write",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "5000",  # without it a black-holed server holds a query for 50 s and more
}

# The hot statements know their plan: nested loops over index scans of few partitions, whatever the statistics of a
# partition made a minute ago say.
HOT_SETTINGS = {
    "plan_cache_mode": "force_custom_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}

MALFORMED = (
    "is neither a libpq URL, such as postgresql://user:password@host/database, nor a keyword string; it has no quotes"
    " around it, and odd characters of a password are written as in any URL, % as %25"
)

# How values are written and read is for no role's or database's own settings to decide (`alter role … set …`): the
# driver does not know all their styles. Also behind a pooler each client has its own of these.
STYLE = {"DateStyle": "ISO, MDY", "TimeZone": "UTC", "standard_conforming_strings": "on"}

# Nor is what else statements of ours rely on, and how long they may take, which each loop looks after itself.
SESSION = {
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "default_transaction_isolation": "read committed",
    "idle_session_timeout": "0",
    "statement_timeout": "0",
    "array_nulls": "on",
}

NEWER = {"transaction_timeout": "0"}
"""The same, of PostgreSQL 17 and later."""

PLAIN_PATH = "set local search_path = public"

POOLED = "select pg_backend_pid() <> %s"
"""Asked with the process id that was told at connecting: whether a pooler is in between, which makes up one of its own.

The server's connection may be another client's after each transaction then: what is set or prepared for a session would
be the other's, and not ours any more.
"""

# SQLSTATE classes and codes after which the same work may succeed later: the connection or the server is going, or this
# transaction lost a race. Everything else is a fault of ours or of the data.
RETRYABLE = (
    "08",  # connection exceptions
    "25P03",  # idle in a transaction, or in it at all, for longer than the server allows
    "25P04",
    "25006",  # read-only transaction: the server became a standby
    "40001",  # serialization failure
    "40P01",  # deadlock
    "53",  # out of disk, memory, connections
    "55P03",  # lock not available within lock_timeout
    "57",  # cancelled, shut down, starting up
    "58",  # I/O error of the server
)


# SQLSTATEs of names that are not there: a schema, a table, a column, a type, a function.
UNKNOWN_NAMES = ("3F000", "42P01", "42703", "42704", "42883")
NO_SCHEMA = "the database has no schema of pgtick, or an older one: run pgtick migrate"


def lacks_schema(error: BaseException) -> bool:
    """Whether our statements name what the database does not have: nobody has migrated it, or not far enough."""
    return isinstance(error, psycopg.Error) and error.sqlstate in UNKNOWN_NAMES


def is_retryable(error: BaseException) -> bool:
    """Whether the same work may succeed later without anybody's help."""
    if not isinstance(error, psycopg.Error):
        return isinstance(error, OSError | TimeoutError)
    if error.sqlstate is None:
        # No SQLSTATE: libpq could not connect or lost the connection, or psycopg timed out.
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(RETRYABLE)


def parsed(url: str | None = None) -> dict[str, Any]:
    """What `url` (default: DATABASE_URL) says, a libpq URL or keyword string; SQLAlchemy's name a driver, too."""
    url = url or os.environ.get("DATABASE_URL", "").strip()
    if not url:
        raise SettingsError(["DATABASE_URL: is not set"])
    try:
        return conninfo_to_dict(re.sub(r"^(postgres(ql)?)\+\w+://", r"\1://", url))
    except psycopg.ProgrammingError:
        # Its own message has the text in it, with the password.
        listening = url == os.environ.get("PGTICK_LISTEN_DATABASE_URL", "").strip()
        variable = "PGTICK_LISTEN_DATABASE_URL" if listening else "DATABASE_URL"
        raise SettingsError([f"{variable}: {MALFORMED}"]) from None


def conninfo(url: str | None = None, **overrides: Any) -> str:
    """The libpq keyword string for `url` (default: DATABASE_URL) with the defaults filled in."""
    given = parsed(url)
    # In no other encoding: what cannot be written in it would fail all that come along, too.
    own = {"application_name": "pgtick", **given, **overrides, "client_encoding": "UTF8"}
    around = {} if "service" in given else environment()
    return make_conninfo(**{**around, **DEFAULTS, **own})


@functools.cache
def environment() -> dict[str, str]:
    """What libpq would take from PGHOST, PGPASSWORD and the like, as they were when this process asked first.

    Tasks set them for programs that they start, and connections that are opened later go where the first ones went.
    """
    if service := os.environ.get("PGSERVICE"):
        return {"service": service}  # which comes before the others
    options = [(each.keyword.decode(), (each.envvar or b"").decode()) for each in psycopg.pq.Conninfo.get_defaults()]
    return {keyword: os.environ[name] for keyword, name in options if name in os.environ}


def assignments(settings: Mapping[str, str], command: str = "set") -> str:
    """The statements that set them, in one."""
    return "; ".join(f"{command} {name} = '{value}'" for name, value in settings.items())


def known_to(connection: psycopg.BaseConnection[Any], settings: Mapping[str, str]) -> dict[str, str]:
    """These settings, with those of newer servers if this is one."""
    return {**settings, **(NEWER if connection.info.server_version >= 170_000 else {})}


def set_up(connection: psycopg.Connection[Any], settings: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Gives a new connection, in autocommit mode, the settings of its session; returns whether a pooler is in between.

    If so, it gets no more than poolers keep for each client.
    """
    pooled = connection.execute(POOLED, [connection.info.backend_pid]).fetchone() == (True,)
    connection.execute(assignments(STYLE if pooled else {**STYLE, **known_to(connection, SESSION), **settings}))
    return pooled


def connect(
    url: str | None = None, settings: Mapping[str, str] = MappingProxyType({}), **overrides: Any
) -> psycopg.Connection[Any]:
    """A connection in autocommit mode that prepares nothing; the caller closes it."""
    connection = psycopg.connect(conninfo(url, **overrides), autocommit=True, prepare_threshold=None)
    try:
        set_up(connection, settings)
    except BaseException:
        connection.close()
        raise
    return connection


def time_of(connection: psycopg.Connection[Any]) -> datetime:
    """The database's time, which is the one that counts; in a transaction, when that began."""
    row = connection.execute("select now()").fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


def cut(connection: psycopg.BaseConnection[Any]) -> None:
    """Ends a connection under a call that hangs in it, from any thread: the call fails as if the server had gone.

    Cancelling the call instead would ask the server, which may be what hangs.
    """
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
        line.shutdown(socket.SHUT_RDWR)


@functools.cache
def engine() -> Engine:
    """SQLAlchemy's engine, for migrations; it keeps no connections.

    Its search_path is plain: where a role is named like our schema, SQLAlchemy would take that for the default one and
    compare tables under other names.
    """
    from sqlalchemy import create_engine  # takes longer to import than all that workers need
    from sqlalchemy.pool import NullPool

    def create() -> psycopg.Connection[Any]:
        connection = connect()
        connection.autocommit = False
        connection.execute(PLAIN_PATH)  # for the transaction in which SQLAlchemy looks around
        return connection

    return create_engine("postgresql+psycopg://", creator=create, poolclass=NullPool)
