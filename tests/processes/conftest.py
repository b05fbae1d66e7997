"""Fixtures for tests with real worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Fleet


@pytest.fixture
def fleet(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    """Workers on the test's own database."""
    fleet = Fleet(dsn, tmp_path)
    yield fleet
    fleet.close()
