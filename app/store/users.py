"""Who has jobs, while they are few: a listing of all users asks for each one's newest, as the indexes go by user."""

from __future__ import annotations

import time

from app.store.pool import Connection

MANY = 100
LIFE_S = 30.0

# From one user to the next by index, however many jobs each has.
_OF_JOBS = """
with recursive u (user_id) as (
    (select user_id from pgtick.jobs order by user_id limit 1)
    union all
    select (select j.user_id from pgtick.jobs j where j.user_id > u.user_id order by j.user_id limit 1)
    from u
    where u.user_id is not null
)
select user_id from u where user_id is not null limit %s
"""


class Users:
    """Those in `users` at once; those of jobs that were put in by hand, and who are not there, within half a minute."""

    def __init__(self) -> None:
        self._of_jobs: list[str] = []
        self._read_at = -LIFE_S

    def few(self, connection: Connection) -> list[str] | None:
        """Every user that has jobs, or None when they are many."""
        rows = connection.execute("select user_id from pgtick.users limit %s", [MANY + 1]).fetchall()
        if len(rows) <= MANY and time.monotonic() - self._read_at > LIFE_S:
            self._of_jobs = [row[0] for row in connection.execute(_OF_JOBS, [MANY + 1])]
            self._read_at = time.monotonic()
        users = {row[0] for row in rows}.union(self._of_jobs)
        return sorted(users) if len(users) <= MANY else None
