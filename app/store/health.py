"""What /healthz tells of the whole installation."""

from __future__ import annotations

from typing import Any, NamedTuple

from psycopg.rows import dict_row

from app.store.pool import Connection

MOST_FINDINGS = 100

_WORKERS = """
select count(*) from pgtick.workers
where state in ('RUNNING', 'DRAINING') and pgtick.is_live(last_seen_at)
"""
_FINDINGS = (
    "select kind, subject, sentence, found_at from pgtick.findings order by found_at desc, kind, subject limit %s"
)


class Health(NamedTuple):
    workers: int
    """Those that live: running or draining, and heard of in the last minute."""
    findings: list[dict[str, Any]]


def read(connection: Connection) -> Health:
    alive = connection.execute(_WORKERS).fetchone()
    findings = connection.cursor(row_factory=dict_row).execute(_FINDINGS, [MOST_FINDINGS]).fetchall()
    return Health(alive[0] if alive else 0, findings)
