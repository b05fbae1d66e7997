"""Fixtures for tests with real worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import roles
from tests.support.databases import Server
from tests.support.processes import Fleet


@pytest.fixture
def fleet(dsn: str, owner_dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    """Workers on the test's own database."""
    fleet = Fleet(dsn, tmp_path, owner=owner_dsn)
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def shared(server: Server, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A database and one running worker for all tests of a module that harm neither."""
    with server.database(template) as dsn:
        fleet = Fleet(roles.runtime(dsn), tmp_path_factory.mktemp("shared"), owner=dsn)
        try:
            fleet.start(kill_after_s=1, memory_limit_mb=400)
            yield fleet
        finally:
            fleet.close()
