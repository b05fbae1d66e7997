"""A job as it is about to be written: validated, its first time known."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

NOW = "NOW"
DATE = "DATE"
CRON = "CRON"
SCHEDULE_TYPES = (NOW, DATE, CRON)


class NewJob(Struct, gc=False):
    """One row of `pgtick.insert_jobs`. Texts of JSON are stored as they are; times are in UTC."""

    job_id: str
    user_id: str
    task_id: str
    schedule_type: str
    expression: str | None
    timezone: str
    run_at: datetime | None
    """Of a DATE its time, of a CRON its first; None: when it is written."""
    due_at: datetime | None
    """When it may start, later than run_at by its jitter; None: at run_at."""
    parameters: str
    max_retries: int | None
    timeout_s: float | None
    policies: str | None
    overlap: str | None
    expires_at: datetime | None
    anchor_at: datetime | None
    """What intervals count from; None: when it is written."""
    trace: str | None = None
    """The headers of the trace it is part of: see `app.domain.trace`."""

    def runs_at(self, now: datetime) -> datetime | None:
        """Its first scheduled time when it is written at `now`: the past is now."""
        if self.schedule_type == CRON:
            return self.run_at
        return now if self.run_at is None else max(self.run_at, now)

    def starts_at(self, now: datetime) -> datetime | None:
        """When that may start."""
        at = self.runs_at(now)
        return max(at, self.due_at) if at and self.due_at else at
