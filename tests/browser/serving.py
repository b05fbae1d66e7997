"""API and dashboard over HTTP, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.dashboard import site
from tests.support.api import running_api, served


@contextmanager
def serving(dsn: str, **settings: Any) -> Iterator[str]:
    """The address of an application with these settings."""
    with running_api(dsn, **settings) as api:
        site.install(api.app)
        with served(api.app) as address:
            yield address
