"""The API on the test's own database."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.api import Api, running_api
from tests.support.databases import Server
from tests.support.working import TASK, Bench

TASKS = "insert into pgtick.tasks (task_id, target) values ('send_email', 'x'), ('make_report', 'y')"


@pytest.fixture
def api(dsn: str, connection: psycopg.Connection) -> Iterator[Api]:
    """A client of the API; the tasks send_email and make_report are registered."""
    connection.execute(TASKS)
    with running_api(dsn) as api:
        yield api


@pytest.fixture
def bench(dsn: str, connection: psycopg.Connection) -> Bench:
    """A worker in parts, at the time of the database; the task noop is registered."""
    connection.execute("insert into pgtick.tasks (task_id, target) values ('noop', 'x')")
    row = connection.execute("select extract(epoch from now())::float8").fetchone()
    assert row is not None
    return Bench(dsn, {1: TASK}, row[0])


@pytest.fixture(scope="module")
def shared_api(server: Server, template: str) -> Iterator[Api]:
    """The same for tests that do not care what others put in: a database takes longer to copy than they to run."""
    with server.database(template) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(TASKS)
        with running_api(dsn) as api:
            yield api
