"""Which tasks exist, remembered for a while: every posted job names one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from typing import Any

from psycopg.rows import dict_row

from app.store.pool import Pool

LIFE_S = 30.0
SHORT_LIFE_S = 1.0
"""What is so old is read again before somebody is refused for it."""

_LIST = """
select task_id, kind, description, queue, (priority - 1) %% 4 + 1 as priority, max_retries,
       backoff_base_s, backoff_factor, backoff_cap_s, backoff_jitter, timeout_s,
       max_concurrent, concurrency_key, max_per_key, rate_per_s, parameters_schema, created_at, updated_at,
       paused_at, paused_note,
       case kind when 'http' then (
           select options || jsonb_build_object('url', target, 'headers', array(select jsonb_object_keys(s.headers)))
           from pgtick.task_secrets s where s.task_id = t.task_id
       ) end as http,
       exists (
           select from pgtick.workers w
           where w.state = 'RUNNING' and pgtick.is_live(w.last_seen_at) and task_key = any (w.task_keys)
       ) as served
from pgtick.tasks t
where %(task_id)s::text is null or task_id = %(task_id)s
order by task_id
"""


class Tasks:
    """Knows tasks by name; asks the database about those it does not know, so a new task is usable at once."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._schemas: dict[str, str] = {}
        self._read_at = -math.inf

    def missing(self, task_ids: Iterable[str]) -> set[str]:
        """Those of `task_ids` that nobody registered."""
        known = self._known if time.monotonic() - self._read_at < LIFE_S else self._read()
        if known.keys() >= set(task_ids):
            return set()
        unknown = {task_id for task_id in task_ids if task_id not in known and "\0" not in task_id}
        if unknown and not unknown <= (known := self._read()).keys():
            return {task_id for task_id in task_ids if task_id not in known}
        return {task_id for task_id in task_ids if "\0" in task_id}

    def key(self, task_id: str) -> int | None:
        """The short name of a task in the execution tables."""
        return None if self.missing([task_id]) else self._known.get(task_id)

    def names(self) -> dict[int, str]:
        """Every task's name by its key."""
        known = self._known if time.monotonic() - self._read_at < LIFE_S else self._read()
        return {key: name for name, key in known.items()}

    def forget(self) -> None:
        """Have the next question answered by the database."""
        self._read_at = -math.inf

    def schema(self, task_id: str, *, newest: bool = False) -> str | None:
        """The JSON schema of a task's parameters; None where anything goes, or there is no such task."""
        if time.monotonic() - self._read_at > (SHORT_LIFE_S if newest else LIFE_S):
            self._read()
        return self._schemas.get(task_id)

    def all(self, task_id: str | None = None) -> list[dict[str, Any]]:
        """Every task as it is registered, or one; `served` when a live worker knows it."""
        wanted = {"task_id": task_id}
        return self._pool.run(lambda c: c.cursor(row_factory=dict_row).execute(_LIST, wanted).fetchall())

    def _read(self) -> dict[str, int]:
        rows = self._pool.run(
            lambda c: c.execute("select task_id, task_key, parameters_schema::text from pgtick.tasks").fetchall()
        )
        with self._lock:
            self._known = {task_id: key for task_id, key, _ in rows}
            self._schemas = {task_id: schema for task_id, _, schema in rows if schema is not None}
            self._read_at = time.monotonic()
            return self._known
