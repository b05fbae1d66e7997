"""What goes wrong: each fault is a function that does it and returns when it was over."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from tests.chaos.fleet import LEASE_S, Fleet, Process
from tests.chaos.pair import Pair

OURS = "application_name like 'pgtick%' and backend_type = 'client backend'"


@dataclass
class Fault:
    """One that happened: monotonic seconds, and the process it happened to."""

    kind: str
    began: float
    over: float
    pid: int | None = None


@dataclass
class Faults:
    """Does one fault after the other; `pair` and `fleet` survive all of them."""

    pair: Pair
    fleet: Fleet
    random: random.Random
    only: str | None = None
    happened: list[Fault] = field(default_factory=list)
    background: list[threading.Thread] = field(default_factory=list)

    def kinds(self) -> list[Callable[[], tuple[float, int | None]]]:
        """A round: the frequent ones several times."""
        return [
            self.kill_worker,
            self.terminate_backends,
            self.freeze_worker,
            self.drop_listener,
            self.restart_fast,
            self.kill_worker,
            self.hold_snapshot,
            self.terminate_backends,
            self.kill_lease_keeper,
            self.long_select,
            self.restart_immediate,
            self.kill_worker,
            self.freeze_worker,
            self.terminate_worker,
            self.fail_over,
        ]

    def run(self, until: float, pause_s: float) -> None:
        kinds = [getattr(self, self.only)] if self.only else self.kinds()
        number = 0
        while time.monotonic() < until:
            kind = kinds[number % len(kinds)]
            number += 1
            began = time.monotonic()
            over, pid = kind()
            name = kind.__name__.replace("_", " ")
            self.happened.append(Fault(name, began, over, pid))
            print(f"  {time.strftime('%H:%M:%S')} {number:3} {name}, over after {over - began:.1f} s", flush=True)
            time.sleep(max(0.0, min(self.random.uniform(0.7, 1.3) * pause_s, until - time.monotonic())))
        for thread in self.background:
            thread.join()

    def _worker(self) -> Process:
        return self.random.choice(self.fleet.workers)

    def kill_worker(self) -> tuple[float, int | None]:
        worker = self._worker()
        pid = worker.pid
        worker.process.kill()
        return time.monotonic(), pid

    def terminate_worker(self) -> tuple[float, int | None]:
        worker = self._worker()
        pid = worker.pid
        worker.process.terminate()
        return time.monotonic(), pid

    def freeze_worker(self) -> tuple[float, int | None]:
        import signal

        worker = self._worker()
        process, pid = worker.process, worker.pid
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.5, LEASE_S + 4))
        process.send_signal(signal.SIGCONT)
        return time.monotonic(), pid

    def kill_lease_keeper(self) -> tuple[float, int | None]:
        import psutil

        pid = self._worker().pid
        try:
            for child in psutil.Process(pid).children():
                if "workers.lease_keeper" in child.cmdline():
                    child.kill()
        except psutil.NoSuchProcess:
            pass  # the worker itself has just died
        return time.monotonic(), pid

    def terminate_backends(self) -> tuple[float, int | None]:
        self._execute(f"select count(pg_terminate_backend(pid)) from pg_stat_activity where {OURS}")
        return time.monotonic(), None

    def drop_listener(self) -> tuple[float, int | None]:
        self._execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'pgtick listener'"
        )
        return time.monotonic(), None

    def restart_fast(self) -> tuple[float, int | None]:
        self.pair.primary.restart("fast")
        return time.monotonic(), None

    def restart_immediate(self) -> tuple[float, int | None]:
        self.pair.primary.restart("immediate")
        return time.monotonic(), None

    def fail_over(self) -> tuple[float, int | None]:
        promoted = self.pair.fail_over()
        self.pair.rebuild()
        return promoted, None

    def hold_snapshot(self) -> tuple[float, int | None]:
        """Goes on while other faults happen."""
        self._in_background("set transaction isolation level repeatable read", "select 1")
        return time.monotonic(), None

    def long_select(self) -> tuple[float, int | None]:
        """A reader of the parents, while partitions want to be dropped and made."""
        self._execute("select pgtick.ensure_partitions(since => now() - interval '6 hours')")
        self._in_background(
            *(f"select count(*) from pgtick.{t}" for t in ("pending_executions", "finished_executions"))
        )
        return time.monotonic(), None

    def _execute(self, statement: str) -> None:
        try:
            with self.pair.connect() as connection:
                connection.execute(statement)  # type: ignore[arg-type]
        except psycopg.Error as error:
            print(f"  (not done: {error})", flush=True)

    def _in_background(self, *statements: str) -> None:
        def hold() -> None:
            try:
                with self.pair.connect() as connection, connection.transaction():
                    for statement in statements:
                        connection.execute(statement)  # type: ignore[arg-type]
                    time.sleep(12)
            except psycopg.Error:
                pass  # the server went away under it

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        self.background.append(thread)
