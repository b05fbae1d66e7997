"""Connections whose server side is lent by a transaction pooler, for one transaction at a time.

What is set for a session would be set for whoever borrows that server connection next, and not hold for ourselves:
settings are set within each transaction instead, and each statement outside of one gets a transaction of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

LENT = {
    "transaction_isolation": "read committed",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "statement_timeout": "0",
    "array_nulls": "on",
}
"""What `app.store.connections.SESSION` is for a session, for a transaction."""


class Connection(psycopg.AsyncConnection[Any]):
    """Like any other until `borrow` is called."""

    _settings = ""

    def borrow(self, settings: str) -> None:
        """From now on each transaction begins with these SET LOCALs."""
        self._settings = settings
        self.cursor_factory = _Cursor

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        outermost = self.info.transaction_status == TransactionStatus.IDLE
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            if self._settings and outermost:
                await self.execute(self._settings)
            yield transaction


class _Cursor(psycopg.AsyncCursor[Any]):
    async def execute(self, query: Any, params: Any = None, **options: Any) -> _Cursor:
        if self.connection.info.transaction_status != TransactionStatus.IDLE:
            return await super().execute(query, params, **options)
        async with self.connection.transaction():
            return await super().execute(query, params, **options)
