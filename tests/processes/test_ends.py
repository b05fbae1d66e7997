"""Every run comes to an end that can be seen, whether it cooperates or not."""

from __future__ import annotations

import signal
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.processes import Fleet, terminate_backends
from tests.support.waiting import eventually


def failure(fleet: Fleet, job: UUID) -> str:
    return fleet.until(job, "FAILED")["error"]


def test_a_coroutine_that_takes_too_long_is_cancelled(shared: Fleet) -> None:
    job = shared.post("nap", parameters={"seconds": 60}, timeout_s=0.3, max_retries=0)
    assert failure(shared, job) == "timed out after 0.3 s"


def test_a_coroutine_that_does_not_listen_is_given_up(shared: Fleet) -> None:
    job = shared.post("deaf_coroutine", timeout_s=0.3)
    assert failure(shared, job) == "timed out after 0.3 s and did not end: it was given up, and may still go on"
    assert shared.workers[0].says("run_abandoned", task_id="deaf_coroutine")


def test_a_thread_that_listens_ends_in_time(shared: Fleet) -> None:
    job = shared.post("listening_thread", timeout_s=0.3)
    assert failure(shared, job) == "timed out after 0.3 s"
    assert shared.ledger.entries(task_id="listening_thread", event="ended")


def test_a_thread_that_does_not_listen_is_interrupted(shared: Fleet) -> None:
    job = shared.post("busy_thread", timeout_s=0.3)
    assert failure(shared, job) == "timed out after 0.3 s"
    assert shared.ledger.entries(task_id="busy_thread", event="stopped", by="Stop")


def test_a_thread_that_cannot_be_interrupted_is_given_up_and_others_get_its_place(fleet: Fleet) -> None:
    worker = fleet.start(threads=1, kill_after_s=0.4)
    job = fleet.post("thread_nap", parameters={"seconds": 600}, timeout_s=0.3, max_retries=0)
    assert failure(fleet, job) == "timed out after 0.3 s and did not end: it was given up, and may still go on"
    assert worker.says("run_abandoned", task_id="thread_nap")
    eventually(lambda: worker.says("worker_unhealthy"))  # as many given up as there are slots
    fleet.until(fleet.post("thread_nap"), "COMPLETED")


def test_a_child_that_does_not_listen_is_killed(shared: Fleet) -> None:
    job = shared.post("deaf_child", timeout_s=1.5)
    assert failure(shared, job) == "timed out after 1.5 s; its process was ended"
    pid = shared.ledger.starts(job)[0]["pid"]
    assert not Path(f"/proc/{pid}").exists()


def test_a_child_runs_elsewhere_and_answers(shared: Fleet) -> None:
    execution = shared.until(shared.post("child_nap"), "COMPLETED")
    assert execution["result"] not in (None, shared.workers[0].pid)


def test_a_child_over_its_memory_limit_fails(shared: Fleet) -> None:
    job = shared.post("hungry", parameters={"mib": 1000})
    assert failure(shared, job) == "MemoryError: more than the memory limit of 400 MiB"
    assert shared.until(shared.post("hungry", parameters={"mib": 1}), "COMPLETED")["result"] == 1024 * 1024


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"signal_number": int(signal.SIGSEGV)}, "process died, signal 11 (SIGSEGV)"),
        ({"status": 3}, "process died, exit status 3, without an answer"),
    ],
)
def test_a_child_that_dies_says_how(shared: Fleet, how: dict[str, int], error: str) -> None:
    failed = shared.until(shared.post("dying_child", parameters=how), "FAILED")
    assert [e["error"] for e in failed["errors"]] == [error] * 4


def test_a_child_is_over_when_it_has_ended_whatever_was_started_after_it(shared: Fleet) -> None:
    first = shared.post("child_nap", parameters={"seconds": 1}, timeout_s=4, max_retries=0)
    shared.until_started(first)
    second = shared.post("child_nap", parameters={"seconds": 6})
    shared.until_started(second)
    shared.until(first, "COMPLETED", timeout=4)
    assert shared.status(second) == "IN_PROGRESS"


def test_a_child_is_over_when_it_has_ended_whatever_it_leaves_behind(shared: Fleet) -> None:
    job = shared.post("leave_behind", parameters={"seconds": 6}, timeout_s=4)
    shared.until(job, "COMPLETED", timeout=4)


def test_a_child_that_ended_in_time_is_believed_though_a_task_kept_the_worker_from_hearing(shared: Fleet) -> None:
    shared.until(shared.post("child_nap"), "COMPLETED")
    job = shared.post("child_nap", parameters={"seconds": 1}, timeout_s=3, max_retries=0)
    shared.until_started(job)
    shared.post("hold_loop", parameters={"seconds": 4, "stretch": 4})
    shared.until(job, "COMPLETED")


def test_children_die_with_their_worker(fleet: Fleet) -> None:
    worker = fleet.start()
    job = fleet.post("child_nap", parameters={"seconds": 60})
    pid = fleet.until_started(job)[0]["pid"]
    worker.kill()
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("leave", "SystemExit: bye"),
        ("leave_thread", "SystemExit: bye"),
        ("cancel_itself", "CancelledError: "),
        ("raise_unprintable", "Unprintable, whose text cannot be had"),
    ],
)
def test_an_odd_way_to_end_is_a_failure_of_that_run_only(shared: Fleet, task: str, error: str) -> None:
    assert failure(shared, shared.post(task)) == error
    shared.until(shared.post("quick"), "COMPLETED")


def test_a_task_that_closes_the_streams_takes_nobody_elses_log(fleet: Fleet) -> None:
    worker = fleet.start()
    fleet.until(fleet.post("close_streams"), "COMPLETED")
    terminate_backends(fleet.connection)
    eventually(lambda: worker.says("loop_recovered", loop="claims"))
    fleet.until(fleet.post("nap"), "COMPLETED")
    worker.terminate()
    assert worker.wait() == 0
    assert worker.says("worker_stopped")


def test_a_task_that_changes_its_surroundings_changes_nothing_for_what_is_started_later(fleet: Fleet) -> None:
    worker = fleet.start()
    fleet.until(fleet.post("change_surroundings"), "COMPLETED")
    fleet.until(fleet.post("child_nap"), "COMPLETED", timeout=10)
    worker.keeper().kill()
    eventually(lambda: worker.says("lease_keeper_died"))
    job = fleet.post("nap", parameters={"seconds": 5})
    assert fleet.until(job, "COMPLETED")["losses"] == 0
    assert len(worker.says("lease_keeper_died")) == 1
