"""What /healthz tells of the whole installation."""

from __future__ import annotations

from typing import Any, NamedTuple

from psycopg.rows import dict_row

from app.store.pool import Connection

ALIVE_S = 15
MOST_FINDINGS = 100

_WORKERS = """
select count(*) from pgtick.workers
where state in ('RUNNING', 'DRAINING') and last_seen_at > now() - %s * interval '1 second'
"""
_FINDINGS = (
    "select kind, subject, sentence, found_at from pgtick.findings order by found_at desc, kind, subject limit %s"
)


class Health(NamedTuple):
    workers: int
    """Workers seen in the last 15 s."""
    findings: list[dict[str, Any]]


def read(connection: Connection) -> Health:
    alive = connection.execute(_WORKERS, [ALIVE_S]).fetchone()
    findings = connection.cursor(row_factory=dict_row).execute(_FINDINGS, [MOST_FINDINGS]).fetchall()
    return Health(alive[0] if alive else 0, findings)
