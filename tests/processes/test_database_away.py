"""Workers live through whatever becomes of their database, finish what runs, and report when it is back."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.embedded.cluster import Cluster
from tests.support.databases import migrate
from tests.support.processes import Fleet, serving, terminate_backends
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server of this module's own, whose commits are real."""
    cluster = Cluster.temporary(fsync=True, settings={"max_connections": "40", "max_wal_senders": "4"})
    try:
        cluster.start()
        migrate(cluster.dsn())
        yield cluster
    finally:
        cluster.destroy()


@pytest.fixture
def own(cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:
    if not cluster.is_running():
        cluster.start()
    with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
        for table in (
            "jobs",
            "schedules",
            "pending_executions",
            "running_executions",
            "finished_executions",
            "workers",
        ):
            connection.execute(f"delete from pgtick.{table}")
    fleet = Fleet(cluster.dsn(), tmp_path)
    yield fleet
    fleet.close()


def reconnect(fleet: Fleet) -> None:
    """The test's own connection, after its server was away."""
    fleet.connection.close()
    fleet.connection = psycopg.connect(fleet.dsn, autocommit=True)


def post_stream(fleet: Fleet, count: int, every: str) -> None:
    fleet.value(
        "select count(pgtick.create_job('nap', to_char((clock_timestamp() + interval '1 s' + n * %s::interval)"
        " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))) from generate_series(1, %s) as n",
        [every, count],
    )


def all_completed(fleet: Fleet, count: int, timeout: float = 40) -> None:
    fleet.eventually(
        "select count(*) = %s from pgtick.finished_executions where status = 'COMPLETED'", [count], timeout
    )
    assert fleet.value("select count(*) from pgtick.executions") == count


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_loses_nothing_and_work_goes_on_within_2_s(own: Fleet, cluster: Cluster, mode: str) -> None:
    own.start()
    own.start()
    post_stream(own, 200, "20 ms")
    own.eventually("select count(*) > 40 from pgtick.finished_executions")
    cluster.restart(mode)
    back = time.monotonic()
    reconnect(own)
    done = own.value("select count(*) from pgtick.finished_executions")
    own.eventually("select count(*) > %s from pgtick.finished_executions", [done], timeout=10)
    recovered = time.monotonic() - back
    all_completed(own, 200)
    assert recovered < 4, "2 s are promised on an idle machine"


def test_what_runs_while_the_database_is_away_is_finished_and_reported_when_it_is_back(
    own: Fleet, cluster: Cluster, tmp_path: Path
) -> None:
    worker = own.start()
    own.start()
    free = tmp_path / "free"
    job = own.post("until", parameters={"path": str(free)})
    own.until_started(job)
    cluster.stop("fast")
    eventually(lambda: worker.says("database_unavailable", loop="reports") or worker.says("database_unavailable"))
    time.sleep(3)  # longer than a lease
    free.touch()
    eventually(lambda: own.ledger.entries(task_id="until", event="ended"))
    cluster.start()
    reconnect(own)
    execution = own.until(job, "COMPLETED")
    assert (execution["losses"], execution["attempt"]) == (0, 1)
    assert len(own.ledger.starts(job)) == 1


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_minute_without_the_server_needs_nobody(own: Fleet, cluster: Cluster) -> None:
    workers = [own.start(), own.start()]
    with serving(own.dsn) as api:
        processes = {child.pid for child in psutil.Process(api.process.pid).children()}
        kinds = ("nap", "thread_nap", "child_nap")
        # Those that end while the server is away, and those that go on until after it is back.
        running = [own.post(task, parameters={"seconds": seconds}) for task in kinds for seconds in (20, 85)]
        for job in running:
            own.until_started(job)
        begin: datetime = own.value("select clock_timestamp()")
        due = [own.post("nap", (begin + timedelta(seconds=n)).isoformat()) for n in range(5, 60)]
        recurring = own.post("quick", "* * * * * *")
        cluster.stop("fast")
        stopped = time.monotonic()
        waits = []
        while time.monotonic() < stopped + 60:
            for method, path in (("POST", "/jobs"), ("GET", "/jobs"), ("GET", "/healthz")):
                asked = time.monotonic()
                status, headers, _ = api.call(method, path, {"task_id": "nap"} if method == "POST" else None)
                waits.append(time.monotonic() - asked)
                assert status == 503
                assert int(headers["Retry-After"]) > 0
        cluster.start()
        reconnect(own)
        back: datetime = own.value("select clock_timestamp()")
        answered = time.monotonic()
        eventually(lambda: api.call("POST", "/jobs", {"task_id": "nap"})[0] == 201, 10)
        answered = time.monotonic() - answered
        for job in due:
            execution = own.until(job, "COMPLETED")
            assert execution["started_at"] < max(back, execution["scheduled_at"]) + timedelta(seconds=2)
        own.eventually(
            "select exists (select from pgtick.finished_executions where job_id = %s and scheduled_at > %s)",
            [recurring, back],
        )
        for job in running:
            execution = own.until(job, "COMPLETED", timeout=60)
            assert (execution["losses"], execution["attempt"], execution["errors"]) == (0, 1, None)
            assert len(own.ledger.starts(job)) == 1
        # The promise is 2 s; the rest is for other tests that want the same two cores.
        assert answered < 2
        assert sorted(waits)[len(waits) // 2] < 2
        assert max(waits) < 3
        assert {child.pid for child in psutil.Process(api.process.pid).children()} == processes
    assert all(worker.process.poll() is None for worker in workers)
    assert not any(worker.says("lease_keeper_died") for worker in workers)


def test_workers_wait_for_a_database_that_is_not_there_at_the_start(own: Fleet, cluster: Cluster) -> None:
    cluster.stop("fast")
    worker = own.launch()
    eventually(lambda: worker.says("database_unavailable", loop="start"), 30)
    cluster.start()
    worker.ready()
    reconnect(own)
    own.until(own.post("quick"), "COMPLETED")


def test_terminated_connections_are_replaced_and_lost_answers_made_good(own: Fleet) -> None:
    workers = [own.start(lease_s=60, renew_s=5), own.start(lease_s=60, renew_s=5)]
    post_stream(own, 400, "10 ms")
    for _ in range(25):
        terminate_backends(own.connection)
        time.sleep(0.1)
    # No lease may be waited for: what a claim took whose answer was lost is handed back.
    all_completed(own, 400, timeout=25)
    assert own.value("select coalesce(sum(losses), 0) from pgtick.finished_executions") == 0
    assert all(worker.process.poll() is None for worker in workers)


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_backends_that_hang_cost_loops_their_connections_only(own: Fleet) -> None:
    worker = own.start(lease_s=6, renew_s=1)
    own.until(own.post("nap"), "COMPLETED")
    query = "select array_agg(pid) from pg_stat_activity where application_name = any(%s)"
    names = [f"pgtick {name}" for name in ("claims", "reports", "leases")]
    pids = own.value(query, [names])
    assert len(pids) == 3
    with stopped(*pids):
        own.until(own.post("nap", parameters={"seconds": 0.1}), "COMPLETED", timeout=40)
        own.eventually(query.replace("array_agg(pid)", "count(*) = 3") + " and pid <> all(%s)", [names, pids])
    assert worker.process.poll() is None
    assert own.value("select coalesce(sum(losses), 0) from pgtick.finished_executions") == 0


def test_a_whole_server_that_hangs_is_survived(own: Fleet, cluster: Cluster) -> None:
    worker = own.start(lease_s=30, renew_s=1)
    free = own.folder / "free"
    job = own.post("until", parameters={"path": str(free)})
    own.until_started(job)
    postmaster = cluster.postmaster_pid
    assert postmaster is not None
    with stopped(postmaster, *(child.pid for child in psutil.Process(postmaster).children())):
        eventually(lambda: worker.says("database_unavailable", loop="claims"), 30)
        free.touch()
        eventually(lambda: own.ledger.entries(task_id="until", event="ended"))
    own.until(job, "COMPLETED")
    own.until(own.post("quick"), "COMPLETED")


def test_connections_to_a_server_that_turned_read_only_are_dropped(own: Fleet) -> None:
    worker = own.start()
    own.connection.execute("alter system set default_transaction_read_only = on")
    own.connection.execute("select pg_reload_conf()")
    try:
        eventually(lambda: worker.says("database_unavailable", loop="claims"))
    finally:
        own.connection.execute("set default_transaction_read_only = off")
        own.connection.execute("alter system reset default_transaction_read_only")
        own.connection.execute("select pg_reload_conf()")
    eventually(lambda: worker.says("loop_recovered", loop="claims"))
    own.until(own.post("quick"), "COMPLETED")


def test_workers_follow_a_failover(own: Fleet, cluster: Cluster, tmp_path: Path) -> None:
    standby = Cluster.standby_of(cluster, cluster.folder / "standby", slot="standby", settings={"hot_standby": "on"})
    try:
        standby.start()
        hosts = {"host": "127.0.0.1,127.0.0.1", "port": f"{cluster.port},{standby.port}"}
        both = make_conninfo(cluster.dsn(), **hosts, target_session_attrs="read-write")
        worker = own.start(both)
        job = own.post("until", parameters={"path": str(tmp_path / "free")})
        own.until_started(job)
        lag = "select count(*) = 1 from pg_stat_replication where replay_lsn >= pg_current_wal_lsn()"
        own.eventually(lag)
        cluster.stop("immediate")
        standby.promote()
        own.dsn = standby.dsn()
        reconnect(own)
        own.until(own.post("quick"), "COMPLETED", timeout=20)
        (tmp_path / "free").touch()
        assert own.until(job, "COMPLETED")["losses"] == 0
        assert worker.process.poll() is None
    finally:
        own.close()
        own.workers.clear()
        own.connection = psycopg.connect(standby.dsn()) if standby.is_running() else own.connection
        standby.destroy()
        cluster.start()
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            connection.execute("select pg_drop_replication_slot('standby')")


def test_too_many_connections_leave_a_partial_fleet_at_work(own: Fleet, cluster: Cluster) -> None:
    own.start()
    hogs: list[psycopg.Connection[Any]] = []
    try:
        with contextlib.suppress(psycopg.OperationalError):
            while len(hogs) < 60:
                hogs.append(psycopg.connect(cluster.dsn()))
        assert len(hogs) < 60, "the server takes no more"
        late = own.launch()
        eventually(lambda: late.says("database_unavailable", loop="start"))
        terminate_backends(own.connection, "application_name in ('pgtick planner', 'pgtick janitor')")
        own.until(own.post("quick"), "COMPLETED")
    finally:
        for hog in hogs:
            hog.close()
    late.ready()
    own.until(own.post("quick"), "COMPLETED")
