"""The roles of migrations/roles.sql on the test server, with a login each.

API and workers of every test run as a role that may not touch the schema; `PGTICK_TEST_ROLE=owner pytest …` runs them
as the one that made it.
"""

from __future__ import annotations

import os

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support.databases import CHECKOUT

ROLES = ("app", "operator", "reader")
PASSWORD = "only-for-tests"


def wanted() -> str:
    """The role that API and workers of this run have; empty for the owner."""
    # On a server that was given, we may not be allowed to make roles.
    role = os.environ.get("PGTICK_TEST_ROLE") or ("owner" if os.environ.get("TEST_DATABASE_URL") else "app")
    return "" if role == "owner" else role


def make(admin: str) -> None:
    """Makes roles and logins, unless they are there."""
    with psycopg.connect(admin) as connection:
        # Test processes may share a server.
        connection.execute("select pg_advisory_xact_lock(7067848)")
        connection.execute((CHECKOUT / "migrations" / "roles.sql").read_bytes())
        for role in ROLES:
            if connection.execute("select from pg_roles where rolname = %s", [login(role)]).fetchone() is None:
                connection.execute(
                    sql.SQL("create role {} login password {} in role {}").format(
                        sql.Identifier(login(role)), sql.Literal(PASSWORD), sql.Identifier(f"pgtick_{role}")
                    )
                )


def login(role: str) -> str:
    return f"pgtick_test_{role}"


def runtime(owner_dsn: str) -> str:
    """The database as API and workers reach it."""
    role = wanted()
    return address(owner_dsn, role) if role else owner_dsn


def address(dsn: str, role: str) -> str:
    """The database of `dsn` for a login of that role."""
    return make_conninfo(dsn, user=login(role), password=PASSWORD)
