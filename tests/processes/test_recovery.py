"""What a worker leaves behind when it dies is run again, once."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import Fleet


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
