"""How the newest run of a job that has ended did end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from app.store import queries
from app.store.pool import Connection

SPAN = timedelta(hours=36)
"""So far back all hours are looked at: a daily job has an occurrence there, also while today's runs."""


class LastRun(NamedTuple):
    """A run that has ended: COMPLETED, FAILED or CANCELLED, and when it was scheduled."""

    status: str
    at: datetime


def read(
    connection: Connection, planned: Mapping[str, datetime | None], since: datetime, now: datetime
) -> dict[str, LastRun]:
    """The newest run of each of these jobs that has ended, scheduled within SPAN or at the time given for the job.

    That is the last time it was planned for. None was scheduled before `since`: the younger the jobs, the less is
    looked at. Jobs of which there is no such run are left out.
    """
    if not planned:
        return {}
    # Not prepared: partitions are left out while planning, by these values.
    rows = connection.execute(queries.last_runs, _values(planned, since, now), prepare=False)
    return {job_id: LastRun(status, at.astimezone(UTC)) for job_id, status, at in rows}


def _values(planned: Mapping[str, datetime | None], since: datetime, now: datetime) -> dict[str, Any]:
    low = max(now - SPAN, since)
    earlier = {job_id: at for job_id, at in planned.items() if at is not None and at < low}
    return {
        "job_ids": list(planned),
        "planned": [earlier.get(job_id) for job_id in planned],
        # Never empty: that would leave out no partition.
        "earlier": sorted({low, *earlier.values()}),
        "low": low,
        "high": now,
    }
