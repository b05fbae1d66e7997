"""How things look in answers: times in RFC 3339, UTC, to the microsecond; identifying members first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from flask import Response
from msgspec import Raw
from werkzeug.datastructures import Headers

from app.api.scheduling import SHOWN_RUNS, Planned
from app.clock import in_utc
from app.domain.execution import PENDING, ExecutionId
from app.domain.job import CRON, DATE
from app.schedule import horizon
from app.schedule.policies import Policies
from app.schedule.zones import zone

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_encode = msgspec.json.Encoder().encode
_RECURRING = Policies.defaults(recurring=True)
_ONE_OFF = Policies.defaults(recurring=False)
_RECURRING_SHOWN = Raw(_encode(_RECURRING.full_dict()))
_ONE_OFF_SHOWN = Raw(_encode(_ONE_OFF.full_dict()))


class _Finished(Response):
    """A response whose headers are complete, which spares each request looking them through for what is missing."""

    def get_wsgi_headers(self, environ: WSGIEnvironment) -> Headers:
        return self.headers


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response of JSON, one line."""
    encoded = _encode(body) + b"\n"
    made = _Finished(encoded, status, headers, mimetype="application/json")
    made.headers["Content-Length"] = str(len(encoded))
    return made


def rfc3339(at: datetime | None) -> str | None:
    """`2026-11-30T08:00:00.000000Z`, of one width so that texts sort as times do."""
    if at is None:
        return None
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="microseconds")[:-6] + "Z"


def created_job(planned: Planned, now: datetime) -> dict[str, Any]:
    """A job that was just made at `now`."""
    job = planned.job
    first = job.runs_at(now)
    schedule: dict[str, Any] = {"type": job.schedule_type, "expression": job.expression, "timezone": job.timezone}
    if job.schedule_type == DATE:
        schedule["run_at"] = rfc3339(job.run_at)
    return {
        "job_id": job.job_id,
        "user_id": job.user_id,
        "task_id": job.task_id,
        "status": PENDING,
        "schedule": schedule,
        "next_runs": next_runs(job.expression, job.timezone, planned.policies, first, job.anchor_at),
        "parameters": Raw(job.parameters.encode()),
        "max_retries": job.max_retries,
        "timeout_s": job.timeout_s,
        "policies": policies(planned.policies),
        "created_at": rfc3339(now),
        "warnings": planned.warnings,
    }


def next_runs(
    expression: str | None,
    timezone: str,
    policies: Policies | None,
    first: datetime | None,
    anchor: datetime | None = None,
) -> list[str | None]:
    """The first run and the few after it."""
    if first is None or expression is None:
        return [] if first is None else [rfc3339(first)]
    found = [first]
    while len(found) < SHOWN_RUNS:
        following = horizon.first(expression, timezone, policies, found[-1], anchor=anchor, runs=len(found))
        if following is None:
            break
        found.append(following)
    return [rfc3339(at) for at in found]


def execution(row: Mapping[str, Any]) -> dict[str, Any]:
    """One execution; JSON columns come as text and go out as they are stored."""
    started, due = row["started_at"], row["due_at"]
    return {
        "execution_id": str(ExecutionId(row["scheduled_at"], row["job_id"])),
        "job_id": row["job_id"],
        "task_id": row["task_id"],
        "user_id": row["user_id"],
        "status": row["status"],
        "scheduled_at": rfc3339(row["scheduled_at"]),
        "due_at": rfc3339(due),
        "started_at": rfc3339(started),
        "finished_at": rfc3339(row["finished_at"]),
        "lateness_s": None if started is None or due is None else (started - due) / timedelta(seconds=1),
        "attempt": row["attempt"],
        "worker_id": row["worker_id"],
        "error": row["error"],
        "errors": raw(row["errors"], b"[]"),
        "result": raw(row["result"]),
        "losses": row["losses"],
        "skipped": row["skipped"],
        "origin": row["origin"],
        # Of one that runs, where it is shown alone.
        "progress": raw(row.get("progress")),
    }


def policies(chosen: Policies) -> Any:
    """Every policy with its value, the defaults, too. Those that change nothing are the same for nearly all jobs."""
    if chosen is _RECURRING:
        return _RECURRING_SHOWN
    return _ONE_OFF_SHOWN if chosen is _ONE_OFF else chosen.full_dict()


def seconds(at: datetime | None) -> str | None:
    """`2026-03-08T07:00:00Z`: for times of schedules, which rarely have fractions."""
    return None if at is None else in_utc(at)


def local(at: datetime | None, timezone: str) -> str | None:
    """A time on the wall of a zone, with its offset."""
    return None if at is None else at.astimezone(zone(timezone)).isoformat()


def run(coming: horizon.Run) -> dict[str, Any]:
    """A coming run: in UTC, on the wall of its zone, and what is odd about it."""
    return {"at": seconds(coming.at), "local": coming.local.isoformat(), "note": coming.note}


def job_schedule(row: Mapping[str, Any]) -> dict[str, Any]:
    schedule = {"type": row["schedule_type"], "expression": row["expression"], "timezone": row["timezone"]}
    if row["schedule_type"] != CRON:
        schedule["run_at"] = rfc3339(row["run_at"])
    return schedule


def raw(text: str | None, default: bytes = b"null") -> Raw:
    """JSON as the database has it, to be sent as it is."""
    return Raw(default if text is None else text.encode())
