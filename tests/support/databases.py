"""One PostgreSQL for a run of the tests, one migrated template in it, and a copy of that for each test."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pytest_postgresql.janitor import DatabaseJanitor

from app.embedded.cluster import Cluster

CHECKOUT = Path(__file__).parents[2]


class Server:
    """A server to make databases on; `admin` is the address of a database that always exists."""

    def __init__(self, admin: str) -> None:
        self.admin = admin

    def create(self, dbname: str, template: str = "template0") -> str:
        """Makes a database, a copy of `template`; returns its address."""
        self._janitor(dbname, template).init()
        return make_conninfo(self.admin, dbname=dbname)

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """The address of a new database, a copy of `template`, that lasts as long as the block."""
        name = f"pgtick_test_{secrets.token_hex(6)}"
        with self._janitor(name, template):
            yield make_conninfo(self.admin, dbname=name)

    def _janitor(self, dbname: str, template: str) -> DatabaseJanitor:
        # As root no server of pytest-postgresql's own can be started: it makes and drops databases on ours.
        where = conninfo_to_dict(self.admin)
        return DatabaseJanitor(
            user=where["user"],
            password=where.get("password"),
            host=where["host"],
            port=where["port"],
            dbname=dbname,
            template_dbname=template,
            maintenance_dbname=where["dbname"],
        )


@contextmanager
def running_server() -> Iterator[Server]:
    """The server named by TEST_DATABASE_URL, else a cluster of this process's own (each xdist process has one)."""
    if given := os.environ.get("TEST_DATABASE_URL"):
        yield Server(given)
        return
    cluster = Cluster.temporary(settings={"max_connections": "200"})
    try:
        yield Server(cluster.start().dsn())
    finally:
        cluster.destroy()


def migrate(dsn: str) -> None:
    """Bring a database to the newest schema, the way people do: with the alembic command."""
    alembic(dsn, "upgrade", "head")


def alembic(dsn: str, *arguments: str) -> None:
    """Run the alembic command on a database; its output is shown when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "alembic", *arguments],
        cwd=CHECKOUT,
        env=os.environ | {"DATABASE_URL": dsn},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
