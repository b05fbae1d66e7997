"""What is CANCELLED never runs, what is COMPLETED stays so, and what runs can be stopped."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path
from uuid import UUID

from app.store.connections import connect
from tests.support.processes import Fleet
from tests.support.waiting import eventually


def cancel_execution(fleet: Fleet, job: UUID) -> str | None:
    return fleet.value("select pgtick.cancel_execution(%s, %s)", [job, fleet.execution(job)["scheduled_at"]])


def test_running_executions_of_every_kind_are_stopped(shared: Fleet) -> None:
    jobs = {task: shared.post(task, parameters={"seconds": 60}) for task in ("nap", "listening_thread", "child_nap")}
    for job in jobs.values():
        shared.until_started(job)
        assert cancel_execution(shared, job) == "IN_PROGRESS"
    for job in jobs.values():
        cancelled = shared.until(job, "CANCELLED")
        assert cancelled["error"] == "cancelled while running"
        assert cancelled["attempt"] == 1
    child = shared.ledger.starts(jobs["child_nap"])[0]["pid"]
    assert not Path(f"/proc/{child}").exists()
    assert shared.ledger.entries(task_id="nap", event="stopped", by="CancelledError")


def test_a_run_that_does_not_listen_is_given_up(shared: Fleet) -> None:
    job = shared.post("deaf_coroutine")
    shared.until_started(job)
    cancel_execution(shared, job)
    assert shared.until(job, "CANCELLED")["error"] == "cancelled while running"


def test_one_that_has_not_started_is_cancelled_at_once(shared: Fleet) -> None:
    job = shared.post("nap", "2031-01-01T00:00:00Z")
    later = shared.post("nap", shared.value("select to_char(now() + interval '1 h', 'YYYY-MM-DD\"T\"HH24:MI:SSTZH')"))
    assert cancel_execution(shared, later) == "CANCELLED"
    assert cancel_execution(shared, later) == "CANCELLED", "asked again"
    assert shared.status(later) == "CANCELLED"
    assert shared.value("select pgtick.cancel_execution(%s, now())", [job]) is None


def test_a_finished_one_stays_what_it_is(shared: Fleet) -> None:
    job = shared.post("quick")
    shared.until(job, "COMPLETED")
    assert cancel_execution(shared, job) == "COMPLETED"
    assert shared.value("select pgtick.cancel_job(%s)", [job]) == 0
    assert shared.status(job) == "COMPLETED"


def test_the_retry_of_a_cancelled_job_does_not_start(shared: Fleet, tmp_path: Path) -> None:
    job = shared.post("fail_once_freed", parameters={"path": str(tmp_path / "free")})
    shared.until_started(job)
    assert shared.value("select pgtick.cancel_job(%s)", [job]) == 0, "it runs"
    (tmp_path / "free").touch()
    cancelled = shared.until(job, "CANCELLED")
    assert cancelled["error"] == "RuntimeError: freed"
    assert len(shared.ledger.starts(job)) == 1


def test_a_claimed_execution_of_a_cancelled_job_does_not_start(fleet: Fleet) -> None:
    fleet.start(lease_s=20, claim_ahead_s=5)
    soon = "select to_char(now() at time zone 'UTC' + interval '4 s', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
    job = fleet.post("nap", fleet.value(soon))
    fleet.eventually("select exists (select from pgtick.running_executions where job_id = %s)", [job])
    assert fleet.value("select pgtick.cancel_job(%s)", [job]) == 1
    cancelled = fleet.until(job, "CANCELLED")
    assert (cancelled["started_at"], cancelled["attempt"]) == (None, 0)
    assert not fleet.ledger.starts(job)


def test_a_thousand_cancellations_race_claim_start_and_completion(shared: Fleet) -> None:
    """Jobs come due while they are cancelled: before, during and after they are claimed and started."""
    shared.connection.execute(
        "create table race as select n, pgtick.create_job('nap', to_char((now() at time zone 'UTC') + interval '1 s'"
        " + n * interval '4 ms', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')) as job_id from generate_series(1, 1000) as n"
    )
    jobs = shared.connection.execute(
        "select r.job_id, j.run_at from race r join pgtick.jobs j using (job_id) order by n"
    ).fetchall()

    def cancel(mine: list[tuple[UUID, datetime]]) -> None:
        with connect(shared.dsn) as connection:
            for job_id, at in mine:
                # Each at its own distance from the start: 20 ms before to 10 ms after.
                connection.execute(
                    "select pg_sleep(greatest(0, extract(epoch from %s - clock_timestamp()) + random() * 0.03 - 0.02)),"
                    " pgtick.cancel_job(%s)",
                    [at, job_id],
                )

    threads = [threading.Thread(target=cancel, args=[jobs[n::4]]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over = "select count(*) = 1000 from pgtick.finished_executions join race using (job_id)"
    eventually(lambda: shared.value(over))
    query = "select status, array_agg(execution_id) from pgtick.executions join race using (job_id) group by status"
    statuses = dict(shared.connection.execute(query).fetchall())
    started = {entry["execution_id"] for entry in shared.ledger.starts()}
    assert set(statuses) <= {"CANCELLED", "COMPLETED"}
    assert not started & set(statuses.get("CANCELLED", [])), "CANCELLED never runs"
    assert set(statuses.get("COMPLETED", [])) <= started
