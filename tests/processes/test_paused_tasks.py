"""A task that is paused while workers run, and others go on."""

from __future__ import annotations

from datetime import timedelta

from tests.support.processes import Fleet, always


def test_while_a_task_is_paused_others_run_and_then_it_goes_on_at_once(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.start()
    recurring = fleet.post("nap", "* * * * * *", {"seconds": 0})
    fleet.eventually("select exists (select from pgtick.finished_executions where job_id = %s)", [recurring])
    fleet.value("select pgtick.pause_task('nap')")
    fleet.eventually("select not exists (select from pgtick.running_executions)")
    starts = "select count(*) from pgtick.finished_executions where job_id = %s"
    before = fleet.value(starts, [recurring])
    waits = fleet.post("nap", parameters={"seconds": 0})
    fleet.until(fleet.post("quick"), "COMPLETED")
    always(lambda: fleet.value(starts, [recurring]) == before and fleet.status(waits) == "PENDING", 1.5)
    resumed_at = fleet.value("select clock_timestamp() from pgtick.resume_task('nap')")
    started_at = fleet.until(waits, "COMPLETED")["started_at"]
    assert timedelta() < started_at - resumed_at < timedelta(seconds=2)
    fleet.eventually(f"select ({starts}) > %s", [recurring, before])
