"""Without notifications jobs start in time all the same, and notifications come back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.processes import Fleet, Worker, terminate_backends
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

LISTENING = """
    select count(*) = %s from pg_stat_activity
    where application_name = 'pgtick listener' and datname = current_database() and query like '%%pgtick.tell%%'
"""


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    proxy = Proxy(dsn)
    yield proxy
    proxy.close()


def runs_within_2_s(fleet: Fleet) -> None:
    job = fleet.post("quick")
    execution = fleet.until(job, "COMPLETED")
    assert execution["lateness"].total_seconds() < 2


def hears(worker: Worker) -> bool:
    return worker.health()["listening"]


def test_a_killed_listener_listens_again(fleet: Fleet) -> None:
    fleet.start()
    fleet.eventually(LISTENING, [1])
    pid = "select pid from pg_stat_activity where application_name = 'pgtick listener' and datname = current_database()"
    old = fleet.value(pid)
    assert terminate_backends(fleet.connection, "application_name = 'pgtick listener'") == 1
    runs_within_2_s(fleet)
    fleet.eventually(LISTENING, [1], timeout=10)
    assert fleet.value(pid) != old


def test_a_blackholed_listener_is_noticed_and_replaced(fleet: Fleet, proxy: Proxy) -> None:
    worker = fleet.start(LISTEN="", PGTICK_LISTEN_DATABASE_URL=proxy.dsn)
    fleet.eventually(LISTENING, [1])
    proxy.blackholed = True
    runs_within_2_s(fleet)
    eventually(lambda: worker.says("database_unavailable", loop="listener"), 20)
    proxy.blackholed = False
    eventually(lambda: worker.says("loop_recovered", loop="listener"), 10)
    runs_within_2_s(fleet)


def test_a_pooler_that_swallows_notifications_is_noticed_once_and_polling_goes_on(fleet: Fleet, proxy: Proxy) -> None:
    proxy.deaf = True
    worker = fleet.start(LISTEN="", PGTICK_LISTEN_DATABASE_URL=proxy.dsn)
    (said,) = eventually(lambda: worker.says("listener_lost"))
    assert "PGTICK_LISTEN_DATABASE_URL" in said
    for _ in range(3):
        runs_within_2_s(fleet)
    assert len(worker.says("listener_lost")) == 1


def test_polling_alone_does_not_keep_the_processor_busy(fleet: Fleet) -> None:
    import psutil

    worker = fleet.start()
    process = psutil.Process(worker.pid)
    before, started = process.cpu_times(), time.monotonic()
    fleet.eventually("select max(last_seen_at) - max(started_at) > interval '4 s' from pgtick.workers")
    after, seconds = process.cpu_times(), time.monotonic() - started
    assert (after.user + after.system - before.user - before.system) / seconds < 0.2


def test_a_wake_up_that_makes_no_sense_is_heard_as_look_at_everything(fleet: Fleet) -> None:
    worker = fleet.start()
    for channel in ("pgtick_due", "pgtick_cancel"):
        fleet.connection.execute("select pg_notify(%s, %s)", [channel, "9" * 20])
        fleet.connection.execute("select pg_notify(%s, %s)", [channel, "9" * 5000])
    fleet.until(fleet.post("nap"), "COMPLETED")
    fleet.until(fleet.post("nap", parameters={"seconds": 1}), "COMPLETED")
    assert not worker.says("loop_failed")
