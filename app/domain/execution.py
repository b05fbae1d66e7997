"""Executions: their statuses and their printed id."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from app.domain.ids import parse_uuid

PENDING = "PENDING"
IN_PROGRESS = "IN_PROGRESS"
RETRYING = "RETRYING"
COMPLETED = "COMPLETED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"
SKIPPED = "SKIPPED"

FINAL = (COMPLETED, FAILED, CANCELLED, SKIPPED)
STATUSES = (PENDING, IN_PROGRESS, RETRYING, *FINAL)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PRINTED = re.compile(r"(-?\d{1,18})-(.{36})", re.ASCII)


def to_microseconds(at: datetime) -> int:
    """Exact µs since the epoch; a float's seconds would lose the last digits."""
    return (at - EPOCH) // _MICROSECOND


def from_microseconds(us: int) -> datetime:
    """Raises OverflowError outside the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=us)


class ExecutionId(NamedTuple):
    """An execution: a job at one time. Printed `<scheduled_at in µs since the epoch>-<job_id>`."""

    scheduled_at: datetime
    job_id: str

    def __str__(self) -> str:
        return f"{to_microseconds(self.scheduled_at)}-{self.job_id}"

    @classmethod
    def parse(cls, text: str) -> ExecutionId | None:
        """None when the text is no such id."""
        found = _PRINTED.fullmatch(text)
        job_id = parse_uuid(found[2]) if found else None
        if found is None or job_id is None:
            return None
        try:
            return cls(from_microseconds(int(found[1])), job_id)
        except OverflowError:
            return None
