"""Fixtures for a real PostgreSQL. No server is started for tests that do not ask for one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.databases import Server, migrate, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The PostgreSQL of this run."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def template(server: Server) -> Iterator[str]:
    """The name of a migrated database that tests copy."""
    with server.database() as dsn:
        migrate(dsn)
        yield psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]


@pytest.fixture
def dsn(server: Server, template: str) -> Iterator[str]:
    """The address of the test's own database, freshly migrated and empty."""
    with server.database(template) as dsn:
        yield dsn


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    """A connection to the test's database; every statement commits."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection
