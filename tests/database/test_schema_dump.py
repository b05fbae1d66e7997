"""migrations/schema.sql is what the migrations make, so that a change to the schema can be read as one."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.schema import SCHEMA_FILE, schema_of

DUMPED_WITH = 18  # other major versions write some things differently


def test_the_committed_dump_is_the_schema(owner_dsn: str, connection: psycopg.Connection[Any]) -> None:
    if connection.info.server_version // 10_000 != DUMPED_WITH:
        pytest.skip(f"the dump is made with PostgreSQL {DUMPED_WITH}")
    assert schema_of(owner_dsn) == SCHEMA_FILE.read_text(), "run `make schema` and commit migrations/schema.sql"
