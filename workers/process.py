"""One worker process: registers, starts its loops, and drains when it is told to stop."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import time
from datetime import datetime
from typing import Any

import psycopg

from app.clock import Clock, clock
from app.events import emit
from app.settings import Settings
from app.store import queries
from app.store.connections import HOT_SETTINGS, is_retryable
from app.version import installed_version
from workers import health, metrics
from workers.claimer import Claimer
from workers.endpoints import Endpoints
from workers.janitor import Janitor
from workers.leases import Leases
from workers.listener import Listener
from workers.loop import SAY_AGAIN_S, Link, Loop
from workers.notify_socket import notify, watchdog_pause_s
from workers.planner import Planner
from workers.registry import Pool, Task, load
from workers.reporter import Reporter
from workers.runner import GIVE_UP_S, Runner
from workers.slots import Slots
from workers.sweeper import Sweeper

GATHER_S = 0.002
"""How long freed slots are gathered before the next claim, so that claims of one row each stay rare."""
CLAIM_LIMIT_S = 4.0
REPORT_LIMIT_S = 5.0
LISTEN_LIMIT_S = 7.0
"""A server that hangs costs a loop so long; what polls for due executions must find out first."""

UNMIGRATED = (
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
)
MIGRATE = "the database has no schema of pgtick, or an older one: run pgtick migrate"


class Worker:
    """Claims, runs and reports until SIGTERM or SIGINT. All workers are equal; any of them may die at any time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock: Clock = clock
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.state = "RUNNING"
        self.worker_id = 0
        self._stop_asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self.problem: str | None = None
        self.loops: dict[str, Loop] = {}
        self._failed = False

    async def run(self) -> int:
        """Returns its exit status; raises SettingsError when it cannot run with these settings."""
        tasks = load(self.settings.task_modules)
        page = await self._open_page()
        await self._register(tasks)
        self._assemble()
        await self._start()
        try:
            await self._stop_asked.wait()
        finally:
            await self._drain()
        if page is not None:
            page.close()
        return os.EX_SOFTWARE if self._failed else os.EX_OK

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _register(self, tasks: dict[str, Task]) -> None:
        """Makes tasks and worker known, waiting for a database that is not there yet, or was not migrated."""
        link = Link("start", self.settings.database_url)
        said, said_at = "", 0.0
        while True:
            try:
                async with asyncio.timeout(30):
                    await self._register_once(link, tasks)
                break
            except Exception as error:
                await link.close()
                unmigrated = isinstance(error, UNMIGRATED)
                if not unmigrated and not is_retryable(error):
                    raise
                event = "schema_missing" if unmigrated else "database_unavailable"
                if event != said or time.monotonic() - said_at > SAY_AGAIN_S:
                    said, said_at = event, time.monotonic()
                    emit(event, loop="start", error=error, **({"advice": MIGRATE} if unmigrated else {}))
                notify(STATUS=f"waiting for the database: {MIGRATE if unmigrated else error}".replace("\n", " "))
                await asyncio.sleep(random.uniform(0.5, 1.0))
        await link.close()

    async def _register_once(self, link: Link, tasks: dict[str, Task]) -> None:
        connection = await link.connection()
        sent = time.monotonic()
        row = await (await connection.execute("select extract(epoch from clock_timestamp())::float8")).fetchone()
        assert row is not None
        self.clock.observe(row[0], sent, time.monotonic())
        every = list(tasks.values())
        known = await connection.execute(
            "select task_id, concurrency_key from pgtick.tasks where task_id = any (%s)", [list(tasks)]
        )
        key_before = dict(await known.fetchall())
        cursor = await connection.execute(
            queries.register_tasks,
            {
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
            },
        )
        keys = dict(await cursor.fetchall())
        rekeyed = [
            keys[t.task_id]
            for t in every
            if key_before.get(t.task_id, t.limits.concurrency_key) != t.limits.concurrency_key
        ]
        await connection.execute("select pgtick.apply_limits(%s, %s::int4[])", [list(keys.values()), rekeyed])
        limits = {
            "async": self.settings.concurrency,
            "thread": self.settings.threads,
            "process": self.settings.processes,
        }
        self.pools = [
            Slots(pool, limits[pool], {keys[t.task_id]: t for t in every if t.pool == pool and self._serves(t)})
            for pool in ("async", "thread", "process")
        ]
        self.task_keys = [key for slots in self.pools for key in slots.task_keys]
        registered = await connection.execute(queries.register_worker, self._facts())
        row = await registered.fetchone()
        assert row is not None
        self.worker_id = row[0]
        emit("worker_started", worker_id=self.worker_id, name=self.name, tasks=",".join(sorted(tasks)))

    def _serves(self, task: Task) -> bool:
        return not self.settings.queues or task.queue in self.settings.queues

    def _facts(self) -> dict[str, Any]:
        return {
            "worker_id": self.worker_id,
            "name": self.name,
            "state": self.state,
            "running": self.runner.running if self.worker_id else 0,
            "capacity": sum(slots.capacity for slots in self.pools if slots.tasks),
            "pools": json.dumps(
                {slots.pool: {"capacity": slots.capacity, "taken": slots.taken} for slots in self.pools if slots.tasks}
            ),
            "task_keys": self.task_keys,
            "queues": list(self.settings.queues) or None,
            "version": installed_version(),
        }

    def _assemble(self) -> None:
        settings, url = self.settings, self.settings.database_url
        # A crash of the server takes back the last claims and plans: they are made again. Outcomes and jobs wait for
        # the disk; what is on it, WAL being one line, is there with all that came before.
        hasty = HOT_SETTINGS | {"synchronous_commit": "off"}
        patient = {"lock_timeout": "2s"}
        links = {
            "claims": Link("claims", url, hasty, prepares=True),
            "reports": Link("reports", url, HOT_SETTINGS | patient, prepares=True),
            "listener": Link("listener", settings.listen_database_url or url),
            "sweeper": Link("sweeper", url, HOT_SETTINGS, prepares=True),
            "planner": Link("planner", url, hasty, prepares=True),
            "janitor": Link("janitor", url, patient),
            "tasks": Link("tasks", url),
        }
        self.runner = Runner(
            settings, self.clock, self.pools, lambda e, o: self.reporter.add(e, o), lambda: self._on_free()
        )
        self.reporter = Reporter(
            settings,
            self.clock,
            links["reports"],
            self.worker_id,
            self.runner.claims,
            lambda: self.loops["reports"].wake(),
            self.runner.progress,
            self._on_room,
        )
        self.claimer = Claimer(settings, self.clock, links["claims"], self.pools, self.worker_id, self.runner.take)
        self.sweeper = Sweeper(settings, self.clock, links["sweeper"], self.pools, self._on_overlooked)
        self.planner = Planner(settings, self.clock, links["planner"], self._on_planned)
        self.janitor = Janitor(settings, links["janitor"], self.worker_id, self.runner.claims, self._on_recovered)
        self.listener = Listener(
            links["listener"],
            self.worker_id,
            self._on_due,
            self.runner.cancel,
            self.runner.revoke,
            self._on_listening,
            self._on_plan,
            self._on_tasks_changed,
        )
        self.endpoints = Endpoints(links["tasks"], settings, self.worker_id, self._on_endpoints)
        self.leases = Leases(
            settings,
            self.clock,
            self.runner.claims,
            self._facts,
            on_lost=self.runner.lose,
            on_cancel=self.runner.cancel,
            on_revoke=self.runner.revoke,
            on_drain=self._stop_asked.set,
        )
        ticks = {
            "claims": self._claim,
            "reports": self.reporter.tick,
            "listener": self.listener.tick,
            "sweeper": self.sweeper.tick,
            "planner": self.planner.tick,
            "janitor": self.janitor.tick,
            "tasks": self.endpoints.tick,
        }
        limits = {"claims": CLAIM_LIMIT_S, "reports": REPORT_LIMIT_S, "listener": LISTEN_LIMIT_S}
        self.loops = {name: Loop(name, tick, links[name], limit_s=limits.get(name, 15)) for name, tick in ticks.items()}

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._keeping = loop.create_task(self.leases.run(), name="leases")
        await self._until_leases_are_kept()
        self._running = {name: loop.create_task(each.run(), name=name) for name, each in self.loops.items()}
        self._minder = loop.create_task(self._mind(), name="minder")
        self._minder.add_done_callback(self._on_minder_ended)

    async def _until_leases_are_kept(self) -> None:
        """Or until it is told to stop: where the server has no connection left for them, that may be first."""
        either = [asyncio.create_task(event.wait()) for event in (self.leases.kept, self._stop_asked)]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        for each in either:
            each.cancel()

    async def _claim(self) -> float:
        # While nobody keeps leases, whatever is claimed goes to others in the middle of its run.
        if self.leases.lapsed:
            return self.settings.poll_s
        return self.settings.report_s if self.reporter.behind else await self.claimer.tick()

    # ── what the loops tell each other ───────────────────────────────────────────────────────────────────────────────

    def _on_due(self, due_at: float | None) -> None:
        if due_at is None:
            self.claimer.look_at_everything()
        else:
            self.claimer.lower_floors(due_at)
        self.loops["claims"].wake()

    def _on_overlooked(self, pool: Pool, priority: int, due_at: datetime) -> None:
        self.claimer.lower_floor(pool, priority, due_at)
        self.loops["claims"].wake()

    def _on_plan(self) -> None:
        self.loops["planner"].wake()

    def _on_planned(self, earliest: float) -> None:
        if earliest < self.clock.now() + self.settings.claim_ahead_s:
            self.claimer.lower_floors(earliest)
            self.loops["claims"].wake()

    def _on_recovered(self) -> None:
        self.loops["claims"].wake()

    def _on_listening(self) -> None:
        self.claimer.look_at_everything()
        self.loops["claims"].wake()

    def _on_tasks_changed(self) -> None:
        self.loops["tasks"].wake()

    def _on_endpoints(self, endpoints: dict[int, Task]) -> list[int]:
        """HTTP tasks are these from now on; returns the keys of all tasks that are served."""
        (slots,) = (each for each in self.pools if each.pool == "async")
        kept = {key: task for key, task in slots.tasks.items() if task.isolable}
        slots.know(kept | {key: task for key, task in endpoints.items() if self._serves(task)})
        self.task_keys = [key for slots in self.pools for key in slots.task_keys]
        self.claimer.look_at_everything()
        self.loops["claims"].wake()
        return self.task_keys

    def _on_room(self) -> None:
        """A limit may have room again."""
        self.loops["claims"].wake()

    def _on_free(self) -> None:
        """A slot is free again, and claims wait for one."""
        if not self.claimer.starved:
            return
        self.claimer.starved = False
        asyncio.get_running_loop().call_later(GATHER_S, self.loops["claims"].wake)

    # ── health ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _open_page(self) -> asyncio.Server | None:
        """Serves /healthz and /metrics."""
        port = self.settings.health_port
        return await health.serve(port, self.health, self.metrics) if port else None

    async def _mind(self) -> None:
        """Tells systemd how things are."""
        ready = False
        while True:
            facts = self.health()
            if facts["problem"] != self.problem:
                emit("worker_unhealthy" if facts["problem"] else "worker_healthy", problem=facts["problem"])
                self.problem = facts["problem"]
            if not ready and all(self.loops[name].came_round for name in ("claims", "reports", "planner")):
                ready = True
                emit("worker_ready", worker_id=self.worker_id)
                notify(READY="1")
            if facts["ok"]:
                notify(WATCHDOG="1", STATUS=f"{self.state.lower()}: {self.runner.running} executions running")
            await asyncio.sleep(min(1.0, watchdog_pause_s() or 1.0) if ready else 0.02)

    def _on_minder_ended(self, minder: asyncio.Task[None]) -> None:
        """Without it nobody would hear how this worker is: it drains, and whoever started it may start another."""
        if not minder.cancelled():
            emit("loop_failed", loop="minder", error=minder.exception())
            self._failed = True
            self.stop()

    def health(self) -> dict[str, Any]:
        """The state of each loop; `ok` while every loop comes round, or waits for a database that is away."""
        if not self.loops:
            return {"ok": False, "problem": "it waits for the database", "state": "STARTING", "loops": {}}
        now = time.monotonic()
        beating: dict[str, Loop | Leases] = {**self.loops, "leases": self.leases}
        loops = {
            name: {
                "ok": not each.ended and now - each.beat < self.settings.unhealthy_s,
                "seconds_ago": round(max(0.0, now - each.beat), 1),
                "problem": "it has ended" if each.ended else each.problem,
            }
            for name, each in beating.items()
        }
        ill = [f"{name}: {each['problem'] or 'does not come round'}" for name, each in loops.items() if not each["ok"]]
        if len(self.runner.abandoned) >= self.settings.threads:
            ill.append(f"{len(self.runner.abandoned)} runs that do not end were given up and take up the process")
        return {
            "ok": not ill,
            "problem": "; ".join(ill) or None,
            "worker_id": self.worker_id,
            "state": self.state,
            "running": self.runner.running,
            "abandoned": len(self.runner.abandoned),
            "unreported": self.reporter.backlog,
            "listening": not self.listener.deaf,
            "loops": loops,
        }

    def metrics(self) -> bytes:
        """What Prometheus reads of this process."""
        if not self.loops:
            return b""
        totals = self.reporter.stats.totals()
        return metrics.page(totals, self.pools, self.health(), self.claimer.claim_s, self.planner.lag_s)

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Asks the worker to drain; asked a second time, it does not wait for running executions."""
        if self._stop_asked.is_set():
            self._hurry.set()
        self._stop_asked.set()

    async def _drain(self) -> None:
        emit("worker_draining", worker_id=self.worker_id, running=self.runner.running)
        notify(STOPPING="1", STATUS=f"draining: {self.runner.running} executions running")
        self.state = "DRAINING"
        self.leases.tell()
        for name in ("claims", "planner"):
            self.loops[name].stop()
        await self._running["claims"]
        self.runner.release_waiting()
        self.loops["reports"].wake()
        await self._until_idle(self.settings.drain_s)
        if self.runner.busy:
            emit("drain_deadline", worker_id=self.worker_id, running=self.runner.running)
            self.runner.release_running()
            self._hurry.clear()
            await self._until_idle(self.settings.kill_after_s + GIVE_UP_S + 1.0)
        await self._until_reported(10.0)
        for each in self.loops.values():
            each.stop()
        for name in ("listener", "sweeper", "planner", "janitor", "tasks"):
            self._running[name].cancel()
        self._minder.cancel()
        await asyncio.gather(*self._running.values(), self._minder, return_exceptions=True)
        self.state = "STOPPED"
        await self.leases.stop()
        await asyncio.wait([self._keeping], timeout=1)
        emit("worker_stopped", worker_id=self.worker_id)

    async def _until_idle(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.runner.busy and time.monotonic() < deadline and not self._hurry.is_set():
            await asyncio.sleep(0.02)

    async def _until_reported(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.reporter.backlog and time.monotonic() < deadline:
            self.loops["reports"].wake()
            await asyncio.sleep(0.02)
        if not self.reporter.backlog:
            try:
                await self.reporter.store_stats()
            except Exception as error:
                emit("stats_lost", error=error)
