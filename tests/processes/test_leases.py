"""A claim is its worker's until its lease is over, and nobody's before; a report without a lease does not count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.databases import CHECKOUT
from tests.support.processes import Fleet, clean_environment
from tests.support.waiting import eventually


def test_a_worker_that_was_frozen_past_its_lease_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    frozen = fleet.start(report_s=0.4)
    job = fleet.post("once_freed", parameters={"path": str(tmp_path / "free")})
    fleet.until_started(job)
    other = fleet.start()
    frozen.freeze()
    execution = fleet.until(job, "COMPLETED")
    (tmp_path / "free").touch()  # the frozen run ends at once when it goes on
    frozen.thaw()
    eventually(lambda: frozen.says("lease_lost") or frozen.says("report_refused"))
    later = fleet.post("nap")
    fleet.until(later, "COMPLETED")
    assert fleet.execution(job) == execution, "a finished row is final"
    assert execution["worker_id"] == other.worker_id()
    assert execution["losses"] == 1


def test_a_report_without_a_lease_is_refused_and_logged(fleet: Fleet, tmp_path: Path) -> None:
    # Renewals far apart: the worker learns of the loss only when it reports.
    worker = fleet.start(lease_s=60, renew_s=20, janitor_s=60, unhealthy_s=60)
    job = fleet.post("once_freed", parameters={"path": str(tmp_path / "free")})
    fleet.until_started(job)
    fleet.start()
    fleet.connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")
    execution = fleet.until(job, "COMPLETED")  # the second run, alone in a child
    assert execution["losses"] == 1
    (tmp_path / "free").touch()
    eventually(lambda: worker.says("report_refused", outcome="Completed", attempt=1))
    assert fleet.execution(job) == execution


def test_an_execution_whose_lease_was_lost_is_stopped(fleet: Fleet) -> None:
    worker = fleet.start()
    jobs = [fleet.post(task, parameters={"seconds": 60}) for task in ("nap", "listening_thread", "child_nap")]
    for job in jobs:
        fleet.until_started(job)
    fleet.connection.execute("delete from pgtick.running_executions")
    eventually(lambda: len(worker.says("lease_lost")) == 3)
    eventually(lambda: fleet.ledger.entries(task_id="nap", event="stopped"))
    eventually(lambda: fleet.ledger.entries(task_id="listening_thread", event="ended"))
    pid = fleet.ledger.starts(jobs[2])[0]["pid"]
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_a_long_task_that_holds_the_interpreter_keeps_its_lease_and_runs_once(fleet: Fleet) -> None:
    holding = fleet.start(lease_s=3, renew_s=1)
    job = fleet.post("hold_interpreter", parameters={"seconds": 9, "stretch": 1.5})
    fleet.until_started(job)
    fleet.start(lease_s=3, renew_s=1)
    execution = fleet.until(job, "COMPLETED", timeout=40)
    assert execution["losses"] == 0
    assert execution["worker_id"] == holding.worker_id()
    assert len(fleet.ledger.starts(job)) == 1


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("tasks", [["hold_loop"], ["hold_interpreter", "hold_loop"]], ids=" and ".join)
def test_a_minute_of_holding_the_interpreter_for_5_s_at_a_time_costs_no_lease_of_10_s(
    fleet: Fleet, tasks: list[str]
) -> None:
    holding = fleet.start(lease_s=10, renew_s=2)
    fleet.until(fleet.post("nap"), "COMPLETED")  # none of the worker's loops is to start up beside the tasks
    at = fleet.value("select to_char(now() at time zone 'UTC' + interval '2 s', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")
    jobs = [fleet.post(task, at, {"seconds": 60, "stretch": 5}) for task in tasks]
    fleet.until_started(jobs[0])
    watching = fleet.start(lease_s=10, renew_s=2)
    for job in jobs:
        execution = fleet.until(job, "COMPLETED", timeout=100)
        assert (execution["losses"], execution["attempt"], execution["errors"]) == (0, 1, None)
        assert execution["worker_id"] == holding.worker_id()
        assert len(fleet.ledger.starts(job)) == 1
    assert not watching.says("leases_recovered")
    assert not holding.says("lease_lost")
    assert not holding.says("report_refused")


@pytest.mark.slow
def test_a_thousand_leases_are_kept_while_the_worker_reads_nothing(fleet: Fleet) -> None:
    """What the keeper has to say of a thousand claims fills its pipe to the worker within a few rounds."""
    holding = fleet.start(lease_s=2, renew_s=0.25)
    fleet.value(
        "select count(pgtick.create_job('nap', parameters => '{\"seconds\": 9}')) from generate_series(1, 990) as n"
    )
    fleet.eventually("select count(*) = 990 from pgtick.running_executions")
    held = fleet.post("hold_loop", parameters={"seconds": 8, "stretch": 8})
    fleet.until_started(held)
    watching = fleet.start(lease_s=2, renew_s=0.25)
    fleet.eventually("select count(*) = 991 from pgtick.finished_executions", timeout=40)
    assert fleet.value("select sum(losses) from pgtick.finished_executions") == 0
    assert not watching.says("leases_recovered")
    assert not holding.says("lease_lost")


def test_a_task_that_holds_the_interpreter_keeps_its_lease_during_a_drain(fleet: Fleet) -> None:
    holding = fleet.start(lease_s=3, renew_s=1, drain_s=30)
    job = fleet.post("hold_interpreter", parameters={"seconds": 6, "stretch": 1.5})
    fleet.until_started(job)
    holding.terminate()
    fleet.start(lease_s=3, renew_s=1)
    execution = fleet.until(job, "COMPLETED", timeout=40)
    assert (execution["losses"], execution["worker_id"]) == (0, holding.worker_id())
    assert holding.wait() == 0


def test_executions_that_wait_in_a_worker_keep_their_leases(fleet: Fleet) -> None:
    fleet.register()
    jobs = [fleet.post("nap", parameters={"seconds": 1.0}) for _ in range(5)]
    # Suspects run one at a time in a child; the last waits for longer than a lease.
    fleet.connection.execute("update pgtick.pending_executions set suspect = true, losses = 1")
    fleet.start(processes=1)
    fleet.start(processes=1, TASKS="none", PGTICK_TASKS="")  # its janitor would take them
    for job in jobs:
        assert fleet.until(job, "COMPLETED")["losses"] == 1
        assert len(fleet.ledger.starts(job)) == 1


def test_a_batch_larger_than_the_places_runs_each_once(fleet: Fleet) -> None:
    fleet.register()
    jobs = [fleet.post("nap", parameters={"seconds": 0.6}) for _ in range(6)]
    fleet.start(concurrency=1)
    for job in jobs:
        assert fleet.until(job, "COMPLETED")["losses"] == 0
        assert len(fleet.ledger.starts(job)) == 1
    events = [entry["event"] for entry in fleet.ledger.entries(task_id="nap")]
    assert events == ["started", "ended"] * 6, "one after the other"


def test_rows_that_a_person_has_locked_cost_nobody_else_a_lease(fleet: Fleet) -> None:
    worker = fleet.start()
    job = fleet.post("nap", parameters={"seconds": 4})
    fleet.until_started(job)
    with fleet.connection.transaction():
        fleet.connection.execute("select from pgtick.workers for update")
        locked = fleet.post("nap", parameters={"seconds": 0.0})
    fleet.until(locked, "COMPLETED")
    assert fleet.until(job, "COMPLETED")["losses"] == 0
    assert not worker.says("lease_lost")


def test_a_lease_keeper_that_hangs_is_replaced_before_leases_run_out(fleet: Fleet) -> None:
    worker = fleet.start(lease_s=9, renew_s=0.5)
    fleet.start(lease_s=9, renew_s=0.5)  # whose janitor would take what has run out
    jobs = [fleet.post("nap", parameters={"seconds": 14}) for _ in range(4)]
    for job in jobs:
        fleet.until_started(job)
    worker.keeper().suspend()
    for job in jobs:
        assert fleet.until(job, "COMPLETED", timeout=40)["losses"] == 0
    assert len(worker.says("lease_keeper_hung")) == 1


def test_nothing_is_claimed_while_leases_are_not_kept(fleet: Fleet) -> None:
    worker = fleet.start(lease_s=2, renew_s=0.5)
    fleet.until(fleet.post("nap"), "COMPLETED")
    worker.keeper().suspend()
    lapsed_at = time.monotonic() + 2.6
    eventually(lambda: time.monotonic() > lapsed_at)
    job = fleet.post("nap")
    fleet.until_started(job)
    assert worker.says("lease_keeper_hung")


def test_a_worker_that_was_stopped_for_long_does_not_blame_its_lease_keeper(fleet: Fleet) -> None:
    worker = fleet.start()
    worker.freeze()
    frozen_until = time.monotonic() + 5
    eventually(lambda: time.monotonic() > frozen_until)
    worker.thaw()
    fleet.until(fleet.post("nap", parameters={"seconds": 2}), "COMPLETED")
    assert not worker.says("lease_keeper_hung")
    assert not worker.says("lease_keeper_died")


def test_a_worker_that_died_in_the_middle_of_a_line_is_dead_to_its_lease_keeper(fleet: Fleet) -> None:
    worker_id = fleet.value(
        "insert into pgtick.workers (name, capacity, version) values ('w', 1, '0') returning worker_id"
    )
    facts = {"worker_id": worker_id, "name": "w", "state": "RUNNING", "running": 0, "capacity": 1, "pools": "{}"}
    facts |= {"task_keys": [], "queues": None, "version": "0"}
    said = f'{json.dumps(facts)}\n{{"worker_id": {worker_id}, "na'
    command = [sys.executable, "-m", "workers.lease_keeper", str(os.getpid())]
    environment = clean_environment(DATABASE_URL=fleet.dsn)
    ended = subprocess.run(command, input=said.encode(), cwd=CHECKOUT, env=environment, capture_output=True, timeout=20)
    assert ended.returncode == 0
    assert fleet.value("select state from pgtick.workers") == "LOST"
