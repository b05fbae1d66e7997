"""Fixtures for tests in a real browser: one Chromium, a database with a busy day, and one with a live worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.browser import chromium, demo
from tests.browser.driving import Browser
from tests.browser.serving import serving
from tests.support.databases import Server
from tests.support.processes import Fleet


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser; tests that need one are skipped where there is none."""
    if reason := chromium.missing():
        pytest.skip(reason)
    with chromium.chromium() as driver:
        yield Browser(driver)


@dataclass
class Site:
    """API and dashboard on a database of their own."""

    base: str
    dsn: str
    ids: dict[str, str]
    connection: psycopg.Connection


@pytest.fixture(scope="module")
def busy(server: Server, template: str, browser: Browser) -> Iterator[Site]:
    """With a busy day behind it, and nothing that moves."""
    with server.database(template) as dsn, serving(dsn) as base, psycopg.connect(dsn, autocommit=True) as connection:
        ids = demo.fill(connection, executions=3_000)
        browser.visit(base)
        yield Site(base, dsn, ids, connection)


@pytest.fixture(scope="module")
def working(
    server: Server, template: str, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """With a worker that runs what is asked of it."""
    with server.database(template) as dsn, serving(dsn) as base:
        fleet = Fleet(dsn, Path(tmp_path_factory.mktemp("working")))
        try:
            fleet.start()
            browser.visit(base)
            yield Site(base, dsn, {}, fleet.connection)
        finally:
            fleet.close()
