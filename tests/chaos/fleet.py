"""The processes under test: API and workers, started again whenever they die."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.support.databases import CHECKOUT
from tests.support.processes import clean_environment

LEASE_S = 6.0
SETTINGS = {
    "PGTICK_TASKS": "tests.chaos.tasks",
    "PGTICK_LEASE_S": str(LEASE_S),
    "PGTICK_RENEW_S": "1.5",
    "PGTICK_JANITOR_S": "1",
    "PGTICK_PARTITIONS_S": "5",
    "PGTICK_GUARDS_S": "2",
    "PGTICK_OLD_SNAPSHOT_S": "5",
    "PGTICK_DRAIN_S": "10",
    "PYTHONPATH": str(CHECKOUT / "tests" / "chaos" / "skew"),
}
SKEWS_S = (0.0, 3600.0, -1800.0)
"""How wrong the wall clock of each worker's host is."""


class Process:
    """One supervised process; `pid` changes when it is started again."""

    def __init__(self, name: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._arguments = arguments
        self._environment = environment
        self._stopping = False
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *self._arguments],
                cwd=CHECKOUT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def supervise(self) -> None:
        if not self._stopping and self.process.poll() is not None:
            self.start()

    def stop(self) -> None:
        self._stopping = True
        if self.process.poll() is None:
            self.process.terminate()

    def wait(self, timeout: float) -> None:
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Fleet:
    """An API and as many workers as there are skews."""

    def __init__(self, dsn: str, folder: Path, port: int) -> None:
        self.ledger = folder / "ledger"
        common = clean_environment(**SETTINGS, DATABASE_URL=dsn, CHAOS_LEDGER=str(self.ledger), PORT=str(port))
        serve = ["-m", "gunicorn", "--config", "python:app.gunicorn_conf", "app.wsgi:app"]
        self.api = Process("api", serve, common, folder / "api.log")
        self.workers = [
            Process(
                f"worker-{number}",
                ["-m", "workers"],
                common | {"CHAOS_CLOCK_OFFSET_S": str(skew), "CHAOS_WORKER": f"worker-{number}"},
                folder / f"worker-{number}.log",
            )
            for number, skew in enumerate(SKEWS_S)
        ]
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()

    def _supervise(self) -> None:
        while not self._over.wait(0.2):
            for process in (self.api, *self.workers):
                process.supervise()

    def stop(self) -> None:
        self._over.set()
        self._supervisor.join()
        everybody = [*self.workers, self.api]
        for process in everybody:
            process.stop()
        deadline = time.monotonic() + 30
        for process in everybody:
            process.wait(max(0.1, deadline - time.monotonic()))
