"""A worker as others see it: makes it and its tasks known when it starts, and says what stands in pgtick.workers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import time
from typing import Any

import psycopg

from app.clock import Clock
from app.events import emit
from app.settings import Settings
from app.store import queries
from app.store.connections import NO_SCHEMA, is_retryable, lacks_schema
from app.version import installed_version
from workers.loop import SAY_AGAIN_S, Link, read_clock
from workers.notify_socket import notify
from workers.registry import Task
from workers.slots import Slots


class Presence:
    """Who this worker is, and what it can run."""

    def __init__(self, settings: Settings, tasks: dict[int, Task]) -> None:
        """`tasks` has all that its modules register, by the keys that the database gave them."""
        self._queues = settings.queues
        self.worker_id = 0
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.state = "RUNNING"
        self.async_slots = Slots("async", settings.concurrency, self._served(tasks, "async"))
        self.pools = [
            self.async_slots,
            Slots("thread", settings.threads, self._served(tasks, "thread")),
            Slots("process", settings.processes, self._served(tasks, "process")),
        ]

    def _served(self, tasks: dict[int, Task], pool: str) -> dict[int, Task]:
        """Those that run in this pool and whose queue this worker serves."""
        return {
            key: task
            for key, task in tasks.items()
            if task.pool == pool and (not self._queues or task.queue in self._queues)
        }

    def know_endpoints(self, endpoints: dict[int, Task]) -> None:
        """HTTP tasks are these from now on."""
        functions = {key: task for key, task in self.async_slots.tasks.items() if not task.is_endpoint}
        self.async_slots.know(functions | self._served(endpoints, "async"))

    @property
    def task_keys(self) -> list[int]:
        """Of all tasks that are served."""
        return [key for slots in self.pools for key in slots.tasks]

    def facts(self, running: int) -> dict[str, Any]:
        """Its row: values of `register_worker.sql` and `keep_alive.sql`."""
        used = [slots for slots in self.pools if slots.tasks]
        return {
            "worker_id": self.worker_id,
            "name": self.name,
            "state": self.state,
            "running": running,
            "capacity": sum(slots.capacity for slots in used),
            "pools": json.dumps({slots.pool: {"capacity": slots.capacity, "taken": slots.taken} for slots in used}),
            "task_keys": self.task_keys,
            "queues": list(self._queues) or None,
            "version": installed_version(),
        }


async def register(settings: Settings, clock: Clock, tasks: dict[str, Task]) -> Presence:
    """Makes worker and tasks known, waiting for a database that is not there yet, or was not migrated."""
    link = Link("start", settings.database_url)
    said, said_at = "", 0.0
    while True:
        try:
            async with asyncio.timeout(30):
                return await _register(await link.connection(), settings, clock, tasks)
        except Exception as error:
            unmigrated = lacks_schema(error)
            if not unmigrated and not is_retryable(error):
                raise
            event = "schema_missing" if unmigrated else "database_unavailable"
            if event != said or time.monotonic() - said_at > SAY_AGAIN_S:
                said, said_at = event, time.monotonic()
                emit(event, loop="start", error=error, **({"advice": NO_SCHEMA} if unmigrated else {}))
            notify(STATUS=f"waiting for the database: {NO_SCHEMA if unmigrated else error}".replace("\n", " "))
        finally:
            await link.close()
        await asyncio.sleep(random.uniform(0.5, 1.0))


async def _register(
    connection: psycopg.AsyncConnection[Any], settings: Settings, clock: Clock, tasks: dict[str, Task]
) -> Presence:
    await read_clock(connection, clock)
    keys = await _declare(connection, tasks)
    presence = Presence(settings, {keys[task_id]: task for task_id, task in tasks.items()})
    row = await (await connection.execute(queries.register_worker, presence.facts(running=0))).fetchone()
    assert row is not None
    presence.worker_id = row[0]
    emit("worker_started", worker_id=presence.worker_id, name=presence.name, tasks=",".join(sorted(tasks)))
    return presence


async def _declare(connection: psycopg.AsyncConnection[Any], tasks: dict[str, Task]) -> dict[str, int]:
    """Makes the tasks known as the code has them, and brings what waits for them in line; returns the key of each."""
    every = list(tasks.values())
    known = "select task_id, concurrency_key from pgtick.tasks where task_id = any (%s)"
    key_before = dict(await (await connection.execute(known, [list(tasks)])).fetchall())
    columns = {
        "task_ids": [t.task_id for t in every],
        "targets": [t.target for t in every],
        "pools": [t.pool for t in every],
        "descriptions": [t.description for t in every],
        "queues": [t.queue for t in every],
        "priorities": [t.limits.stored_priority(t.priority) for t in every],
        "max_retries": [t.max_retries for t in every],
        "backoff_bases": [float(t.backoff.base_s) for t in every],
        "backoff_factors": [float(t.backoff.factor) for t in every],
        "backoff_caps": [float(t.backoff.cap_s) for t in every],
        "backoff_jitters": [float(t.backoff.jitter) for t in every],
        "timeouts": [None if t.timeout is None else float(t.timeout) for t in every],
        "max_concurrents": [t.limits.max_concurrent for t in every],
        "concurrency_keys": [t.limits.concurrency_key for t in every],
        "max_per_keys": [t.limits.max_per_key for t in every],
        "rates": [None if t.limits.rate_per_s is None else float(t.limits.rate_per_s) for t in every],
        "schemas": [None if t.schema is None else json.dumps(t.schema) for t in every],
    }
    keys = dict(await (await connection.execute(queries.register_tasks, columns)).fetchall())
    rekeyed = [
        keys[t.task_id]
        for t in every
        if key_before.get(t.task_id, t.limits.concurrency_key) != t.limits.concurrency_key
    ]
    await connection.execute("select pgtick.apply_limits(%s, %s::int4[])", [list(keys.values()), rekeyed])
    return keys
