"""Fixtures for a real PostgreSQL. No server is started for tests that do not ask for one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support import roles
from tests.support.databases import Server, migrate, running_server


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spreads the modules of each folder over the whole run.

    Those of `processes` wait, those of `database` compute: one folder after the other, either the cores or the test
    processes would be idle.
    """
    modules = [list(tests) for _, tests in itertools.groupby(items, lambda test: test.path)]
    placed: list[tuple[float, list[pytest.Item]]] = []
    for folder in dict.fromkeys(folder_of(tests) for tests in modules):
        alike = [tests for tests in modules if folder_of(tests) == folder]
        before = itertools.accumulate(map(len, alike), initial=0)
        count = sum(map(len, alike))
        placed += [(place / count, tests) for place, tests in zip(before, alike, strict=False)]
    items[:] = [test for _, tests in sorted(placed, key=lambda each: each[0]) for test in tests]


def folder_of(tests: list[pytest.Item]) -> str:
    return tests[0].path.relative_to(Path(__file__).parent).parts[0]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The PostgreSQL of this run."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def template(server: Server) -> Iterator[str]:
    """The name of a migrated database that tests copy."""
    if roles.wanted():
        roles.make(server.admin)
    with server.database() as dsn:
        migrate(dsn)
        yield psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]


@pytest.fixture
def owner_dsn(server: Server, template: str) -> Iterator[str]:
    """The address of the test's own database, freshly migrated and empty, as the role that migrated it."""
    with server.database(template) as dsn:
        yield dsn


@pytest.fixture
def dsn(owner_dsn: str) -> str:
    """The same database as API and workers reach it: as PGTICK_TEST_ROLE says (app, which may do no DDL, or owner)."""
    return roles.runtime(owner_dsn)


@pytest.fixture
def connection(owner_dsn: str) -> Iterator[psycopg.Connection]:
    """The test's own connection to its database, as the owner; every statement commits."""
    with psycopg.connect(owner_dsn, autocommit=True) as connection:
        yield connection
