"""One worker process: registers, starts its loops, and drains when it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from app.clock import Clock, clock
from app.events import emit
from app.settings import Settings
from app.store.connections import HOT_SETTINGS
from workers import health, metrics
from workers.claimer import Claimer
from workers.endpoints import Endpoints
from workers.janitor import Janitor
from workers.leases import Leases
from workers.listener import Listener
from workers.loop import Link, Loop
from workers.notify_socket import notify, watchdog_pause_s
from workers.planner import Planner
from workers.presence import register
from workers.registry import Pool, Task, load
from workers.reporter import Reporter
from workers.runner import GIVE_UP_S, Runner
from workers.sweeper import Sweeper

GATHER_S = 0.002
"""How long freed slots are gathered before the next claim, so that claims of one row each stay rare."""
CLAIM_LIMIT_S = 4.0
REPORT_LIMIT_S = 5.0
LISTEN_LIMIT_S = 7.0
"""A server that hangs costs a loop so long; what polls for due executions must find out first."""


class Worker:
    """Claims, runs and reports until SIGTERM, SIGINT or SIGHUP. All workers are equal; any may die at any time."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock: Clock = clock
        self._stop_asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self.problem: str | None = None
        self.loops: dict[str, Loop] = {}
        self._failed = False

    async def run(self) -> int:
        """Returns its exit status; raises SettingsError when it cannot run with these settings."""
        tasks = load(self.settings.task_modules)
        page = await self._open_page()
        self.presence = await register(self.settings, self.clock, tasks)
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

    def _assemble(self) -> None:
        settings, url = self.settings, self.settings.database_url
        pools, worker_id = self.presence.pools, self.presence.worker_id
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
        self.runner = Runner(settings, self.clock, pools, lambda e, o: self.reporter.add(e, o), self._on_free)
        claims = self.runner.claims
        self.reporter = Reporter(
            settings,
            self.clock,
            links["reports"],
            worker_id,
            claims,
            self._waker("reports"),
            self.runner.progress,
            on_room=self._waker("claims"),
        )
        self.claimer = Claimer(settings, self.clock, links["claims"], pools, worker_id, self.runner.take)
        self.sweeper = Sweeper(settings, self.clock, links["sweeper"], pools, self._on_overlooked)
        self.planner = Planner(settings, self.clock, links["planner"], self._on_planned)
        self.janitor = Janitor(
            settings,
            self.clock,
            links["janitor"],
            worker_id,
            claims,
            self._waker("claims"),
            lambda: self.claimer.under_way,
        )
        self.listener = Listener(
            links["listener"],
            worker_id,
            on_connect=self._look_at_everything,
            on_due=self._on_due,
            on_cancel=self.runner.cancel,
            on_revoke=self.runner.revoke,
            on_plan=self._waker("planner"),
            on_tasks=self._waker("tasks"),
        )
        self.endpoints = Endpoints(settings, links["tasks"], worker_id, self._on_endpoints)
        self.leases = Leases(
            settings,
            self.clock,
            claims,
            lambda: self.presence.facts(self.runner.running),
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
        # What a task forks may live longer than this process, whose end server and lease keeper must see all the same.
        for let_go in (*(link.let_go for link in links.values()), self.leases.let_go):
            os.register_at_fork(after_in_child=let_go)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
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

    def _waker(self, name: str) -> Callable[[], None]:
        return lambda: self.loops[name].wake()

    def _on_due(self, due_at: float | None) -> None:
        if due_at is None:
            self._look_at_everything()
        else:
            self.claimer.lower_floors(due_at)
            self.loops["claims"].wake()

    def _on_overlooked(self, pool: Pool, priority: int, due_at: datetime) -> None:
        self.claimer.lower_floor(pool, priority, due_at)
        self.loops["claims"].wake()

    def _on_planned(self, earliest: float) -> None:
        if earliest < self.clock.now() + self.settings.claim_ahead_s:
            self.claimer.lower_floors(earliest)
            self.loops["claims"].wake()

    def _look_at_everything(self) -> None:
        self.claimer.look_at_everything()
        self.loops["claims"].wake()

    def _on_endpoints(self, endpoints: dict[int, Task]) -> list[int]:
        """HTTP tasks are these from now on; returns the keys of all tasks that are served."""
        self.presence.know_endpoints(endpoints)
        self._look_at_everything()
        return self.presence.task_keys

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
                if facts["problem"]:
                    emit("worker_unhealthy", problem=facts["problem"])
                else:
                    emit("worker_healthy")
                self.problem = facts["problem"]
            if not ready and all(self.loops[name].came_round for name in ("claims", "reports", "planner")):
                ready = True
                emit("worker_ready", worker_id=self.presence.worker_id)
                notify(READY="1")
            if facts["ok"]:
                notify(WATCHDOG="1", STATUS=f"{self.presence.state.lower()}: {self.runner.running} executions running")
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
            "worker_id": self.presence.worker_id,
            "state": self.presence.state,
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
        return metrics.page(totals, self.presence.pools, self.health(), self.claimer.claim_s, self.planner.lag_s)

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Asks the worker to drain; asked a second time, it does not wait for running executions."""
        if self._stop_asked.is_set():
            self._hurry.set()
        self._stop_asked.set()

    async def _drain(self) -> None:
        emit("worker_draining", worker_id=self.presence.worker_id, running=self.runner.running)
        notify(STOPPING="1", STATUS=f"draining: {self.runner.running} executions running")
        self.presence.state = "DRAINING"
        self.leases.tell()
        for name in ("claims", "planner"):
            self.loops[name].stop()
        await self._running["claims"]
        self.runner.release_waiting()
        self.loops["reports"].wake()
        await self._until_idle(self.settings.drain_s)
        if self.runner.busy:
            emit("drain_deadline", worker_id=self.presence.worker_id, running=self.runner.running)
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
        self.presence.state = "STOPPED"
        await self.leases.stop()
        await asyncio.wait([self._keeping], timeout=1)
        emit("worker_stopped", worker_id=self.presence.worker_id)

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
