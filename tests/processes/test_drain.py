"""A worker that is told to stop finishes what it can and hands the rest back, uncharged."""

from __future__ import annotations

import time

from tests.support.processes import Fleet
from tests.support.waiting import eventually


def test_a_short_run_is_finished_and_recorded(fleet: Fleet) -> None:
    worker = fleet.start()
    job = fleet.post("nap", parameters={"seconds": 1})
    fleet.until_started(job)
    later = fleet.post("nap", parameters={"seconds": 0})
    fleet.until(later, "COMPLETED")
    worker.terminate()
    assert worker.wait() == 0
    assert fleet.status(job) == "COMPLETED"
    assert fleet.value("select state from pgtick.workers where worker_id = %s", [worker.worker_id()]) == "STOPPED"
    assert not fleet.value("select exists (select from pgtick.running_executions)")


def test_long_runs_of_every_kind_are_handed_back_uncharged_and_start_elsewhere(fleet: Fleet) -> None:
    fleet.register()
    jobs = [fleet.post(task, parameters={"seconds": 600}) for task in ("nap", "thread_nap", "child_nap")]
    # Old: whoever looks only at what is newly due would miss them.
    fleet.connection.execute("update pgtick.pending_executions set due_at = due_at - interval '10 min'")
    worker = fleet.start(drain_s=1, kill_after_s=0.5)
    for job in jobs:
        fleet.until_started(job)
    other = fleet.start(sweep_s=60)
    worker.terminate()
    assert worker.wait() == 0
    stopped = time.monotonic()
    for job in jobs:
        fleet.until_started(job, times=2)
        execution = fleet.execution(job)
        assert (execution["attempt"], execution["losses"], execution["errors"]) == (1, 0, None)
        assert execution["worker_id"] == other.worker_id()
        assert fleet.ledger.starts(job)[1]["at"] - stopped < 2


def test_a_second_signal_hands_back_at_once(fleet: Fleet) -> None:
    worker = fleet.start(drain_s=300)
    job = fleet.post("nap", parameters={"seconds": 600})
    fleet.until_started(job)
    worker.terminate()
    eventually(lambda: worker.says("worker_draining"))
    assert worker.process.poll() is None
    worker.terminate()
    assert worker.wait(10) == 0
    execution = fleet.execution(job)
    assert (execution["status"], execution["attempt"], execution["losses"]) == ("PENDING", 0, 0)


def test_sigkill_during_a_drain_leaves_it_to_the_lease(fleet: Fleet) -> None:
    worker = fleet.start(drain_s=300)
    job = fleet.post("nap", parameters={"seconds": 3})
    fleet.until_started(job)
    worker.terminate()
    eventually(lambda: worker.says("worker_draining"))
    worker.kill()
    fleet.start()
    assert fleet.until(job, "COMPLETED")["losses"] == 1


def test_a_draining_worker_claims_nothing(fleet: Fleet) -> None:
    worker = fleet.start(drain_s=300)
    running = fleet.post("nap", parameters={"seconds": 600})
    fleet.until_started(running)
    worker.terminate()
    eventually(lambda: worker.says("worker_draining"))
    job = fleet.post("nap")
    fleet.until(job, "COMPLETED") if fleet.start() else None
    assert fleet.execution(job)["worker_id"] != worker.worker_id()


def test_a_drain_can_be_asked_for_in_the_database(fleet: Fleet) -> None:
    worker = fleet.start(drain_s=300)
    job = fleet.post("nap", parameters={"seconds": 2.5})
    fleet.until_started(job)
    fleet.connection.execute("update pgtick.workers set drain_requested_at = now()")
    assert worker.wait(20) == 0
    assert fleet.status(job) == "COMPLETED", "asked for in every heartbeat, but not a second time"


def test_a_worker_that_does_not_get_to_keep_leases_ends_when_it_is_told_to(fleet: Fleet) -> None:
    worker = fleet.launch(tasks="tests.support.tasks,tests.support.keep_nothing")
    eventually(lambda: "no lease is kept" in worker.log())
    job = fleet.post("quick")
    worker.terminate()
    assert worker.wait(15) == 0
    assert fleet.status(job) == "PENDING"
