"""Who has jobs, while they are few: a listing of all users asks for each one's newest, as the indexes go by user."""

from __future__ import annotations

from app.store.pool import Connection

MANY = 100


class Users:
    """Those in `users`: `pgtick.insert_jobs` sees to it that everybody who has jobs is there."""

    def few(self, connection: Connection) -> list[str] | None:
        """Every user, or None when they are many."""
        rows = connection.execute("select user_id from pgtick.users limit %s", [MANY + 1]).fetchall()
        return sorted(row[0] for row in rows) if len(rows) <= MANY else None
