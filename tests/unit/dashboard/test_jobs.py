"""How a job stands: a recurring one as its last run ended, not as the next one waits."""

from __future__ import annotations

from typing import Any

import pytest

from app.dashboard.pages.jobs import standing

LAST, NEWEST, NEXT = "2026-11-30T14:10:08Z", "2026-11-30T14:11:00Z", "2026-11-30T14:11:01Z"


def job(**given: Any) -> dict[str, Any]:
    known = {"status": "PENDING", "scheduled_at": NEWEST, "next_run_at": NEXT, "last_status": "FAILED"}
    known |= {"last_run_at": LAST, "cancelled_at": None, "paused_at": None, "problem": None}
    return known | {"schedule": {"type": "CRON"}} | given


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (job(), ("FAILED", LAST, NEXT)),
        (job(last_status=None, last_run_at=None), ("PENDING", None, NEXT)),
        (job(status="IN_PROGRESS"), ("IN_PROGRESS", NEWEST, NEXT)),
        (job(paused_at=LAST), ("PAUSED", LAST, None)),
        (job(problem="x"), ("BROKEN", LAST, NEXT)),
        (job(cancelled_at=LAST, status="CANCELLED"), ("CANCELLED", LAST, None)),
        (
            job(schedule={"type": "NOW"}, next_run_at=None, last_status=None, last_run_at=None),
            ("PENDING", None, NEWEST),
        ),
        (job(schedule={"type": "NOW"}, next_run_at=None, status="RETRYING"), ("RETRYING", LAST, NEWEST)),
        (job(schedule={"type": "DATE"}, next_run_at=None, status="FAILED"), ("FAILED", LAST, None)),
    ],
)
def test_a_job_stands_as_its_last_run_ended(found: dict[str, Any], expected: tuple[str | None, ...]) -> None:
    assert standing(found) == expected


def test_a_job_that_was_looked_for_by_status_is_shown_with_it() -> None:
    assert standing(job(status="COMPLETED"), matched=True) == ("COMPLETED", NEWEST, NEXT)


def test_a_job_alone_has_its_newest_execution_in_it() -> None:
    alone = job(execution={"scheduled_at": NEWEST}, next_runs=[NEXT])
    for name in ("scheduled_at", "next_run_at"):
        del alone[name]
    assert standing(alone) == ("FAILED", LAST, NEXT)
    assert standing(alone | {"execution": None, "next_runs": [], "status": None, "last_status": None}).next_at is None
