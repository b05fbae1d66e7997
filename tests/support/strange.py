"""Settings that somebody gave a role or a database for other programs, and that must make no difference to this one."""

from __future__ import annotations

import psycopg
from psycopg import sql

SETTINGS = {
    "client_encoding": "LATIN1",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kolkata",
    "bytea_output": "escape",
    "extra_float_digits": "0",
    "default_transaction_isolation": "serializable",
    "idle_session_timeout": "300ms",
    "row_security": "off",
    "array_nulls": "off",
}


def limit_transactions(connection: psycopg.Connection) -> None:
    """In the database of the connection no transaction may take long; before PostgreSQL 17 there was no such limit."""
    if connection.info.server_version >= 170_000:
        make(connection, transaction_timeout="20ms")


def make(connection: psycopg.Connection, **settings: str) -> None:
    """The database of the connection begins every session with these, by default with all of the above."""
    for name, value in (settings or SETTINGS).items():
        statement = sql.SQL("alter database {} set {} = {}")
        connection.execute(
            statement.format(sql.Identifier(connection.info.dbname), sql.Identifier(name), sql.Literal(value))
        )
