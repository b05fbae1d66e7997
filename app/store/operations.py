"""Operations: one act on many executions, asked for by filter, counted first, then worked off in batches."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.rows import dict_row

from app.store.pool import Connection

COUNT_LIMIT = 1_000_000
FIRST_BATCH = 500

_COLUMNS = (
    "operation_id, user_id, action, filter, at, matched, done, refused, problem, created_at, worked_at, finished_at"
)
_COUNT = """
select count(*) from pgtick.matching(
    jsonb_populate_record(null::pgtick.operations, jsonb_build_object(
        'action', %(action)s::text, 'filter', %(filter)s::jsonb, 'at', %(at)s::timestamptz,
        'created_at', clock_timestamp()
    )), %(limit)s)
"""
_ADD = f"""
insert into pgtick.operations (user_id, action, filter, at, matched, created_at)
values (%(user_id)s, %(action)s, %(filter)s, %(at)s, %(matched)s, clock_timestamp())
returning {_COLUMNS}
"""
_STOP = """
update pgtick.operations set finished_at = clock_timestamp(), problem = 'stopped by hand'
where operation_id = %s and finished_at is null
"""


class Wanted(NamedTuple):
    """What is to be done to which executions. `filter` is stored as it is."""

    action: str
    filter: dict[str, Any]
    at: datetime | None

    def values(self) -> dict[str, Any]:
        return {"action": self.action, "filter": json.dumps(self.filter), "at": self.at}


def parse_id(text: str) -> int | None:
    """The id, or None when the text is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def count(connection: Connection, wanted: Wanted) -> int:
    """How many executions it would be done to, a million at most."""
    row = connection.execute(_COUNT, wanted.values() | {"limit": COUNT_LIMIT}).fetchone()
    return int(row[0]) if row else 0


def add(connection: Connection, wanted: Wanted, user_id: str | None) -> dict[str, Any]:
    """Writes it down, for workers to do."""
    values = wanted.values() | {"user_id": user_id, "matched": count(connection, wanted)}
    row = connection.cursor(row_factory=dict_row).execute(_ADD, values).fetchone()
    assert row is not None
    facts = json.dumps({"operation_id": row["operation_id"], "filter": wanted.filter, "matched": row["matched"]})
    connection.execute("select pgtick.audit(%s, 'many executions', %s::jsonb)", [wanted.action, facts])
    return row


def begin(connection: Connection, operation_id: int) -> None:
    """Does the first batch, which is all of most operations."""
    connection.execute("select pgtick.operate(%s, %s)", [FIRST_BATCH, operation_id])


def get(connection: Connection, operation_id: int) -> dict[str, Any] | None:
    """An operation with how far it is; None if there is none."""
    query = f"select {_COLUMNS} from pgtick.operations where operation_id = %s"
    return connection.cursor(row_factory=dict_row).execute(query, [operation_id]).fetchone()


def newest(connection: Connection, user_id: str | None, limit: int) -> list[dict[str, Any]]:
    """The latest operations, of one user or of all."""
    query = f"""
        select {_COLUMNS} from pgtick.operations
        where %(user_id)s::text is null or user_id = %(user_id)s order by operation_id desc limit %(limit)s
    """
    return connection.cursor(row_factory=dict_row).execute(query, {"user_id": user_id, "limit": limit}).fetchall()


def owner(connection: Connection, operation_id: int) -> str | None:
    """Who asked for it; None if there is none."""
    row = get(connection, operation_id)
    return row["user_id"] if row else None


def stop(connection: Connection, operation_id: int) -> bool:
    """No further batch of it is done; returns whether one was to come."""
    stopped = connection.execute(_STOP, [operation_id]).rowcount == 1
    if stopped:
        connection.execute("select pgtick.audit('stop_operation', %s)", [str(operation_id)])
    return stopped
