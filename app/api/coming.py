"""The runs of a recurring job that are to come: those that are pending, and those that its schedule will make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.schedule import horizon
from app.schedule.horizon import Run
from app.schedule.policies import Policies
from app.schedule.zones import zone


def following(row: Mapping[str, Any], n: int, now: datetime) -> list[Run]:
    """The next n that are not pending yet, by the columns of a job and its schedule. Raises ScheduleError."""
    policies = Policies.from_dict(row["policies"], recurring=True)
    return horizon.upcoming(
        row["expression"],
        row["timezone"],
        policies,
        max(now, row["planned_through"] or now),
        n,
        anchor=row["anchor_at"],
        runs=row["runs"] or 0,
        skips=row["skips"] or (),
    )


def coming(row: Mapping[str, Any], pending: Sequence[datetime], n: int, now: datetime) -> list[Run]:
    """The next n; none when the job is paused, cancelled or no more. `pending` are the times of those made already."""
    if row["anchor_at"] is None or row["paused_at"] is not None or row["cancelled_at"] is not None:
        return []
    policies, where = Policies.from_dict(row["policies"], recurring=True), zone(row["timezone"])
    schedule = horizon.occurrences_of(row["expression"], row["timezone"], policies)
    made = [Run(at, at.astimezone(where), schedule.note(at)) for at in pending[:n]]
    return made + following(row, n - len(made), now)
