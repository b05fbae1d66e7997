"""Keeps a worker's HTTP tasks as they are in the database: every worker knows all of them, also new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from psycopg.rows import dict_row

from app.domain.addresses import networks
from app.domain.endpoint import Endpoint
from app.domain.limits import Limits, nominal_priority
from app.domain.retry import Backoff
from app.events import emit
from app.settings import Settings
from app.store import queries
from workers.loop import Link
from workers.registry import Task

if TYPE_CHECKING:
    from workers.tasks.http_request import Client

PAUSE_S = 10.0
"""Longest time until a worker knows a new task, when the message that there is one gets lost."""


class Endpoints:
    """Reads HTTP tasks now and then, and when there was a change. Every change of what is known is passed on."""

    def __init__(
        self, settings: Settings, link: Link, worker_id: int, on_change: Callable[[dict[int, Task]], list[int]]
    ) -> None:
        """`on_change` takes the HTTP tasks there are, and returns the keys of all tasks the worker serves."""
        self._settings = settings
        self._link = link
        self._worker_id = worker_id
        self._on_change = on_change
        self._client: Client | None = None
        self._rows: list[dict[str, Any]] = []

    async def tick(self) -> float:
        connection = await self._link.connection()
        cursor = connection.cursor(row_factory=dict_row)
        rows = await (await cursor.execute(queries.select_endpoints)).fetchall()
        if rows != self._rows:
            served = self._on_change(self._endpoints(rows))
            await connection.execute(queries.tell_tasks, {"task_keys": served, "worker_id": self._worker_id})
            self._rows = rows
        await self._link.close()  # it is seldom needed
        return PAUSE_S

    def _endpoints(self, rows: list[dict[str, Any]]) -> dict[int, Task]:
        """Those that can be read: one that somebody has spoilt by hand must not take the others with it."""
        found: dict[int, Task] = {}
        for row in rows:
            try:
                found[row["task_key"]] = self._task(row)
            except (LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
                emit("task_unreadable", task_id=row["task_id"], error=error)
        return found

    def _task(self, row: dict[str, Any]) -> Task:
        options = msgspec.json.decode(row["options"])
        endpoint = Endpoint(
            url=row["target"],
            method=options["method"],
            headers=msgspec.json.decode(row["headers"]),
            expected=tuple(options["expected"]),
            retried=tuple(options["retried"]),
            secret=row["secret"],
        )
        limits = Limits(row["max_concurrent"], row["concurrency_key"], row["max_per_key"], row["rate_per_s"])
        backoff = (row["backoff_base_s"], row["backoff_factor"], row["backoff_cap_s"], row["backoff_jitter"])
        return Task(
            task_id=row["task_id"],
            function=self._clients().function(endpoint),
            pool="async",
            queue=row["queue"],
            priority=nominal_priority(row["priority"]),
            max_retries=row["max_retries"],
            backoff=Backoff(*backoff),
            timeout=row["timeout_s"],
            limits=limits,
            is_endpoint=True,
        )

    def _clients(self) -> Client:
        if self._client is None:
            # Not before there is an HTTP task: it takes a while, and most workers have none.
            from workers.tasks.http_request import Client

            self._client = Client(networks(self._settings.http_allow), connections=self._settings.concurrency)
        return self._client
