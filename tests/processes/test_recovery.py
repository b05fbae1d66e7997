"""What a worker leaves behind when it dies is run again, and nobody else pays for it."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

from app.store import queries
from tests.support.processes import Fleet
from tests.support.waiting import eventually


def test_a_killed_workers_execution_is_run_again_and_completed_once(fleet: Fleet, tmp_path: Path) -> None:
    first = fleet.start()
    job = fleet.post("once_freed", parameters={"path": str(tmp_path / "free")})
    fleet.until_started(job)
    second = fleet.start()
    first.kill()
    execution = fleet.until(job, "COMPLETED")
    assert execution["losses"] == 1
    assert execution["attempt"] == 1, "the loss is not charged"
    assert execution["worker_id"] == second.worker_id()
    assert len(fleet.ledger.starts(job)) == 2
    assert [e["error"] for e in execution["errors"]] == ["lease lost: the worker died or hung"]


def test_what_a_dead_process_had_claimed_need_not_wait_for_its_lease(fleet: Fleet, tmp_path: Path) -> None:
    slow = {"lease_s": 100, "renew_s": 5}
    first = fleet.start(claim_ahead_s=10, **slow)
    job = fleet.post("once_freed", parameters={"path": str(tmp_path / "free")})
    fleet.until_started(job)
    soon = "select to_char(now() at time zone 'UTC' + interval '6 s', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
    ahead = fleet.post("nap", fleet.value(soon))
    fleet.eventually("select exists (select from pgtick.running_executions where job_id = %s)", [ahead])
    fleet.start(**slow)
    first.kill()
    assert fleet.until(job, "COMPLETED", timeout=40)["losses"] == 1
    assert fleet.until(ahead, "COMPLETED")["losses"] == 0, "it cannot have started: no suspect"
    assert first.says("worker_died")
    assert fleet.value("select state from pgtick.workers where worker_id = %s", [first.worker_id()]) == "LOST"


def test_a_poison_job_fails_within_its_attempts_and_its_ten_neighbours_complete_uncharged(fleet: Fleet) -> None:
    fleet.register()
    # Due in the same instant, so that one claim takes them all.
    at = fleet.value("select to_char(now() at time zone 'UTC' + interval '4 s', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")
    neighbours = [fleet.post("nap", at, {"seconds": 1.0}) for _ in range(10)]
    poison = fleet.post("poison_pool", at, {"seconds": 0.3})
    victim = fleet.start()
    assert victim.wait() == -signal.SIGKILL
    fleet.start(processes=6)
    failed = fleet.until(poison, "FAILED")
    assert failed["attempt"] == 4
    assert failed["error"] == "process died, signal 9 (SIGKILL)"
    assert [e["error"] for e in failed["errors"]] == ["lease lost: the worker died or hung"] + [failed["error"]] * 4
    for job in neighbours:
        execution = fleet.until(job, "COMPLETED")
        assert (execution["attempt"], execution["losses"]) == (1, 1)


def test_a_crash_on_the_last_attempt_fails_once(fleet: Fleet) -> None:
    fleet.register()
    job = fleet.post("nap", parameters={"seconds": 60}, max_retries=0)
    # As a suspect that has lost its worker before: a further loss is its own doing.
    fleet.connection.execute("update pgtick.pending_executions set suspect = true, losses = 1")
    first = fleet.start()
    fleet.until_started(job)
    first.kill()
    fleet.start()
    failed = fleet.until(job, "FAILED")
    assert failed["attempt"] == 1
    assert failed["error"] == "lease lost while running alone: the worker died or hung"
    assert len(fleet.ledger.starts(job)) == 1, "no attempt after the last"


def test_kill_9_at_any_moment_of_a_busy_worker_loses_nothing(fleet: Fleet) -> None:
    """During claims, between claim and start, while running, and during reports."""
    fleet.register()
    fleet.value(
        "select count(pgtick.create_job('nap', to_char((now() + n * interval '20 ms') at time zone 'UTC',"
        ' \'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\'))) from generate_series(1, 400) as n'
    )
    survivor = fleet.start()
    for victim_number in range(3):
        victim = fleet.start()
        worker_id = victim.worker_id()
        fleet.eventually(
            "select exists (select from pgtick.finished_executions where worker_id = %s)"
            " or not exists (select from pgtick.pending_executions)",
            [worker_id],
        )
        victim.kill()
        if victim_number == 1:
            fleet.connection.execute("delete from pgtick.workers")
    fleet.eventually("select count(*) = 400 from pgtick.finished_executions where status = 'COMPLETED'")
    assert fleet.value("select count(*) from pgtick.running_executions") == 0
    assert fleet.value("select count(*) from pgtick.pending_executions") == 0
    runs: dict[str, int] = {}
    for entry in fleet.ledger.entries(event="ended"):
        runs[entry["execution_id"]] = runs.get(entry["execution_id"], 0) + 1
    doubled = [execution_id for execution_id, count in runs.items() if count > 1]
    query = "select array_agg(execution_id) from pgtick.executions where losses > 0"
    assert set(doubled) <= set(fleet.value(query) or []), "a second run without a visible loss"
    eventually(lambda: survivor.worker_id(), 5)  # its row, deleted by hand, is back


def test_leases_are_not_judged_before_workers_had_time_to_renew_them(fleet: Fleet) -> None:
    fleet.register()
    job = fleet.post("nap")
    fleet.connection.execute(
        "with gone as (delete from pgtick.pending_executions returning *)"
        " insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority,"
        " attempt, losses, suspect, worker_id, lease_expires_at)"
        " select 1, job_id, scheduled_at, due_at, user_id, task_key, 2, 1, 0, false, 0, now() - interval '1 s'"
        " from gone"
    )
    up = fleet.value("select clock_timestamp() - pg_postmaster_start_time()")
    recovered = fleet.connection.execute(
        queries.recover_expired, {"n": 10, "grace": up + timedelta(seconds=60), "only": None}
    )
    assert recovered.fetchall() == [], "the server has just come up"
    recovered = fleet.connection.execute(queries.recover_expired, {"n": 10, "grace": timedelta(0), "only": None})
    assert len(recovered.fetchall()) == 1
    assert fleet.execution(job)["status"] == "PENDING"


def test_what_a_dead_worker_ran_does_not_wait_for_each_other(fleet: Fleet) -> None:
    first = fleet.start()
    jobs = [fleet.post("nap", parameters={"seconds": 3.0}) for _ in range(8)]
    for job in jobs:
        fleet.until_started(job)
    first.kill()
    fleet.start(processes=1)
    runs = [fleet.until(job, "COMPLETED") for job in jobs]
    assert max(run["started_at"] for run in runs) < min(run["finished_at"] for run in runs)
