"""Where the history of executions begins, and having it begin earlier."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.store.pool import Connection

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
"""Nothing is scheduled earlier."""
AT_ONCE = timedelta(days=2)


def begins(connection: Connection) -> datetime:
    """The earliest time for which there is a partition."""
    row = connection.execute(
        "select from_at from pgtick.partition_windows where parent = 'finished_executions'"
    ).fetchone()
    return row[0] if row else BEGINNING


def reach_back(connection: Connection, since: datetime) -> None:
    """Makes partitions from `since` on, as far as there are none. For a connection in autocommit mode."""
    edge = begins(connection)
    while edge > since:
        # A few at a time: every new partition costs locks until the end of its transaction.
        edge = max(edge - AT_ONCE, since - timedelta(hours=1))
        connection.execute("select pgtick.ensure_partitions(since => %s)", [edge])
