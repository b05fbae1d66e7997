"""No worker is alive but deaf: its health says so, and its watchdog is no longer fed."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import Server, migrate
from tests.support.processes import Fleet, Worker, free_port
from tests.support.waiting import eventually


class Systemd:
    """Stands in for systemd's end of $NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heard: list[tuple[float, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while message := self._socket.recv(4096):
            self.heard += [(time.monotonic(), line) for line in message.decode().splitlines()]

    def said(self, word: str) -> list[float]:
        return [at for at, line in self.heard if line == word]

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", str(self.path))
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(tmp_path / "notify")
    yield systemd
    systemd.close()


def start(fleet: Fleet, systemd: Systemd, dsn: str | None = None, *, ready: bool = True, **settings: object) -> Worker:
    variables = {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": 1_000_000, "PGTICK_HEALTH_PORT": free_port()}
    worker = fleet.launch(dsn, **variables, **settings)
    return worker.ready() if ready else worker


def test_ready_comes_with_the_database_and_stopping_with_the_drain(fleet: Fleet, systemd: Systemd) -> None:
    from tests.support.proxy import Proxy

    proxy = Proxy(fleet.dsn)
    proxy.refusing = True
    try:
        worker = start(fleet, systemd, proxy.dsn, ready=False)
        eventually(lambda: any("waiting for the database" in line for _, line in systemd.heard))
        assert not systemd.said("READY=1")
        proxy.refusing = False
        eventually(lambda: systemd.said("READY=1"))
        eventually(lambda: len(systemd.said("WATCHDOG=1")) > 2)
        job = fleet.post("nap", parameters={"seconds": 1})
        fleet.until_started(job)
        worker.terminate()
        eventually(lambda: systemd.said("STOPPING=1"))
        fed = len(systemd.said("WATCHDOG=1"))
        eventually(lambda: len(systemd.said("WATCHDOG=1")) > fed)  # a drain is no hang
        assert worker.wait() == 0
        assert len(systemd.said("READY=1")) == 1
    finally:
        proxy.close()


def test_health_shows_each_loop(fleet: Fleet, systemd: Systemd) -> None:
    worker = start(fleet, systemd)
    health = worker.health()
    assert (health["status"], health["ok"], health["problem"]) == (200, True, None)
    assert set(health["loops"]) == {
        "claims", "reports", "listener", "sweeper", "planner", "janitor", "tasks", "leases",
    }  # fmt: skip
    assert all(loop["ok"] for loop in health["loops"].values())


def test_a_blocked_claim_loop_turns_health_bad_and_stops_the_watchdog(fleet: Fleet, systemd: Systemd) -> None:
    # The loops of a worker cannot be blocked from outside: this one's claims hang in something that is no database.
    worker = start(fleet, systemd, unhealthy_s=5, PGTICK_TASKS="tests.support.tasks,tests.support.hang_claims")
    # Where other processes want the same cores, other loops may be late for a moment, too.
    health = eventually(lambda: h if not (h := worker.health())["loops"]["claims"]["ok"] else None, 30)
    assert health["status"] == 503
    assert "claims" in health["problem"]
    eventually(lambda: worker.says("worker_unhealthy"))
    last = systemd.said("WATCHDOG=1")[-1]
    eventually(lambda: time.monotonic() - last > 3)
    assert systemd.said("WATCHDOG=1")[-1] == last


def test_a_loop_that_has_ended_turns_health_bad_at_once(fleet: Fleet, systemd: Systemd) -> None:
    worker = start(fleet, systemd, PGTICK_TASKS="tests.support.tasks,tests.support.end_planner")
    eventually(lambda: worker.health()["status"] == 503)
    assert worker.health()["loops"]["planner"]["problem"] == "it has ended"


def test_a_task_that_holds_the_interpreter_does_not_turn_health_bad(fleet: Fleet, systemd: Systemd) -> None:
    worker = start(fleet, systemd, unhealthy_s=8)
    job = fleet.post("hold_interpreter", parameters={"seconds": 4, "stretch": 4})
    fleet.until(job, "COMPLETED")
    assert worker.health()["status"] == 200
    assert not worker.says("worker_unhealthy")


def test_a_database_that_is_away_does_not_turn_health_bad(fleet: Fleet, systemd: Systemd) -> None:
    from tests.support.proxy import Proxy

    proxy = Proxy(fleet.dsn)
    try:
        worker = start(fleet, systemd, proxy.dsn, unhealthy_s=5)
        proxy.refusing = True
        proxy.cut()
        eventually(lambda: worker.says("database_unavailable", loop="claims"))
        eventually(lambda: worker.health()["loops"]["claims"]["problem"])
        until = time.monotonic() + 6
        eventually(lambda: time.monotonic() > until)
        assert worker.health()["status"] == 200
        proxy.refusing = False
        eventually(lambda: worker.says("loop_recovered", loop="claims"))
    finally:
        proxy.close()


def test_a_lease_keeper_that_dies_has_a_successor(fleet: Fleet, systemd: Systemd) -> None:
    worker = start(fleet, systemd, lease_s=6, renew_s=1)
    job = fleet.post("nap", parameters={"seconds": 4})
    fleet.until_started(job)
    worker.keeper().kill()
    eventually(lambda: worker.says("lease_keeper_died"))
    assert fleet.until(job, "COMPLETED")["losses"] == 0


def test_a_task_that_blocks_the_event_loop_is_told_of_while_it_does(fleet: Fleet) -> None:
    """By the lease keeper: nothing else of the only worker comes round."""
    worker = fleet.start(lease_s=3, renew_s=0.5)
    held = fleet.post("hold_loop", parameters={"seconds": 12, "stretch": 12})
    fleet.until_started(held)
    later = fleet.post("quick")
    fleet.eventually("select state = 'BLOCKED' from pgtick.worker_status")
    query = "select subject, sentence from pgtick.findings where kind = 'blocked_worker'"
    subject, sentence = eventually(lambda: fleet.connection.execute(query).fetchone())  # type: ignore[misc]
    assert subject == f"worker {fleet.value('select name from pgtick.workers')}"
    assert "It runs 1 × hold_loop." in sentence
    assert "a task blocks it" in fleet.value("select pgtick.explain(%s)", [str(later)])
    assert fleet.value("select kind from pgtick.stuck") == "blocked worker"
    assert worker.says("worker_blocked")
    fleet.until(held, "COMPLETED", timeout=20)
    fleet.eventually("select state = 'RUNNING' from pgtick.worker_status")
    fleet.eventually("select not exists (select from pgtick.findings where kind = 'blocked_worker')", timeout=20)


def test_a_worker_whose_health_port_is_taken_says_so_and_ends(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = fleet.launch(health_port=port)
        assert worker.wait() == os.EX_CONFIG
    assert worker.log().splitlines()[-1] == f"PGTICK_HEALTH_PORT: {port} is in use"
    assert "Traceback" not in worker.log()
    assert fleet.value("select count(*) from pgtick.workers") == 0


def test_a_worker_that_cannot_tell_how_it_is_says_so_and_ends(fleet: Fleet) -> None:
    worker = fleet.launch(tasks="tests.support.tasks,tests.support.end_minder")
    assert worker.wait() == os.EX_SOFTWARE
    assert worker.says("loop_failed", loop="minder")
    assert worker.says("worker_stopped")


def test_the_page_of_a_worker_that_waits_for_the_database_is_there(fleet: Fleet) -> None:
    worker = fleet.launch("host=127.0.0.1 port=1 dbname=nowhere", health_port=free_port())
    eventually(lambda: worker.says("database_unavailable", loop="start"))
    health = worker.health()
    assert (health["status"], health["problem"]) == (503, "it waits for the database")


def test_a_worker_waits_for_a_database_that_was_not_migrated(fleet: Fleet, systemd: Systemd, server: Server) -> None:
    with server.database() as empty:
        worker = start(fleet, systemd, empty, ready=False)
        eventually(lambda: worker.says("schema_missing"))
        told = "run pgtick migrate"
        assert told in worker.log()
        eventually(lambda: any(told in line for _, line in systemd.heard if line.startswith("STATUS=")))
        assert "Traceback" not in worker.log()
        migrate(empty)
        worker.ready()
        assert len(worker.says("schema_missing")) == 1
        worker.close()


def test_a_notify_socket_that_nobody_reads_holds_nothing_up(fleet: Fleet, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unread:
        unread.bind(str(tmp_path / "notify"))
        fleet.start(NOTIFY_SOCKET=tmp_path / "notify", WATCHDOG_USEC=10_000)
        full_at = time.monotonic() + 3
        eventually(lambda: time.monotonic() > full_at)
        fleet.until(fleet.post("nap"), "COMPLETED", timeout=5)


def test_neither_does_one_that_there_is_no_descriptor_for(fleet: Fleet, systemd: Systemd, tmp_path: Path) -> None:
    worker = start(fleet, systemd, tasks="tests.support.tasks,tests.support.rough_tasks")
    freed = tmp_path / "freed"
    fleet.post("use_up_descriptors", parameters={"path": str(freed)})
    eventually(Path(f"{freed}.taken").exists)
    silent_until = time.monotonic() + 2
    eventually(lambda: time.monotonic() > silent_until)
    fed = len(systemd.said("WATCHDOG=1"))
    freed.touch()
    eventually(lambda: len(systemd.said("WATCHDOG=1")) > fed + 2)
    assert worker.process.poll() is None


def test_the_watchdog_is_fed_whatever_tasks_have_made_of_the_environment(fleet: Fleet, systemd: Systemd) -> None:
    start(fleet, systemd, tasks="tests.support.tasks,tests.support.rough_tasks")
    fleet.until(fleet.post("set_environment"), "COMPLETED")
    fed = len(systemd.said("WATCHDOG=1"))
    eventually(lambda: len(systemd.said("WATCHDOG=1")) > fed + 2)
