"""From the body of a PATCH to what is to change: the job as it would be is validated as a new one is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct

from app.api import requests, scheduling
from app.api.json_checks import pointer
from app.api.problems import Fault
from app.api.requests import Retries, Timeout
from app.api.scheduling import Check, anything_goes
from app.domain.job import CRON, DATE, NOW
from app.store import verbs
from app.store.pool import Connection


class JobPatch(Struct, forbid_unknown_fields=True):
    """What to change of a job; what is left out stays. null is the default. Read field by field."""

    schedule: Any = None
    timezone: str | None = None
    parameters: dict[str, Any] | None = None
    policies: dict[str, Any] | None = None
    max_retries: Retries | None = None
    timeout_s: Timeout | None = None


FIELDS = JobPatch.__struct_fields__


def edit(
    connection: Connection, job_id: str, body: bytes, now: datetime, check: Check = anything_goes
) -> bool | list[Fault]:
    """Changes a job; returns whether that changed anything, or everything that is wrong with the body.

    What is left out stays as it is; so do policies that are not named. null is the default. Raises verbs.Refused.
    """
    given = requests.read_object(body)
    if isinstance(given, list):
        return given
    with connection.transaction():
        verbs.lock(connection, job_id)
        row = verbs.definition(connection, job_id)
        assert row is not None
        changes = changes_of(given, row, now, body.decode(), check)
        return changes if isinstance(changes, list) else verbs.edit(connection, job_id, changes)


def changes_of(
    given: dict[str, Any],
    row: dict[str, Any],
    now: datetime,
    text: str | None = None,
    check: Check = anything_goes,
) -> dict[str, Any] | list[Fault]:
    """The fields to change, in the form they are stored in."""
    faults = [
        Fault(pointer("", name), f"cannot be changed; {', '.join(FIELDS)} can") for name in given if name not in FIELDS
    ]
    if given.get("schedule", "") is None:
        faults.append(Fault("/schedule", "a job has a schedule; cancel it with DELETE, or pause it"))
    if faults:
        return faults
    timed = given.keys() & {"schedule", "timezone", "policies"}
    # A schedule that is over, or broken, is no obstacle to what has nothing to do with it.
    whole = {"task_id": row["task_id"], **(_timing(given, row) if timed else {}), **given}
    if isinstance(given.get("policies"), dict) and row["policies"]:
        whole["policies"] = {**row["policies"], **given["policies"]}
    elif timed and "policies" not in given:
        whole["policies"] = row["policies"]
    if "parameters" not in given:
        check = anything_goes
    read = requests.explain(whole, text)
    planned = scheduling.plan(read, str(row["job_id"]), row["user_id"], now, lambda _: True, check)
    if isinstance(planned, list):
        return planned
    job = planned.job
    changes: dict[str, Any] = {name: given[name] for name in ("max_retries", "timeout_s") if name in given}
    if "schedule" in given or ("timezone" in given and job.schedule_type == CRON):
        at = None if job.run_at is None else job.run_at.isoformat(timespec="microseconds")
        changes["schedule"] = {CRON: job.expression, DATE: at, NOW: "now"}[job.schedule_type]
    if "schedule" in given or "timezone" in given:
        changes["timezone"] = job.timezone
    if "parameters" in given:
        changes["parameters"] = Raw(job.parameters.encode())
    if "policies" in given:
        changes["policies"] = planned.policies.to_dict()
    return changes


def _timing(given: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The parts of a schedule that the body leaves out. Of a single run only the kind matters: its time stays."""
    if "schedule" in given:
        inside = isinstance(given["schedule"], dict) and "timezone" in given["schedule"]
        return (
            {} if inside or "timezone" in given else {"timezone": row["timezone"]} if row["timezone"] != "UTC" else {}
        )
    timezone = {} if "timezone" in given else {"timezone": row["timezone"]}
    if row["schedule_type"] == CRON:
        return {"schedule": {"type": CRON, "expression": row["expression"]}, **timezone}
    return {"schedule": {"type": NOW}, **timezone}
