"""From what a request says about time to a job's first run: one place for all the forms a schedule may have."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Raw

from app.api.problems import Fault
from app.api.requests import JobPost, Read, Schedule
from app.domain.job import CRON, DATE, NOW, NewJob
from app.schedule import horizon
from app.schedule.dates import parse_date
from app.schedule.errors import ScheduleError, ScheduleErrors
from app.schedule.every import is_every
from app.schedule.policies import Policies
from app.schedule.zones import zone

SHOWN_RUNS = 5
"""Coming runs that are shown with a job."""
MOST_RUNS = 100
"""So many there are for whoever asks for them."""
_UTC = "UTC"
_LIKE_A_DATE = re.compile(r"\s*(\d{4}-|\d{8}T)", re.ASCII)
_FORMS = '"now", a date and time in ISO 8601 with an offset, a cron expression, or an object with one of them'
_RECURRING = Policies.defaults(recurring=True)
_ONE_OFF = Policies.defaults(recurring=False)


Check = Callable[[str, Raw], list[Fault]]
"""What is wrong with parameters for a task."""


class Planned(NamedTuple):
    """A job ready to be written, its policies, and what was decided for the user."""

    job: NewJob
    policies: Policies
    warnings: list[str]


class _Asked(NamedTuple):
    """What was asked for, in one form, with the pointers to blame for each part."""

    type: str
    text: str | None
    timezone: str | None
    pointer: str
    timezone_pointer: str


def anything_goes(task_id: str, parameters: Raw) -> list[Fault]:
    """Finds no fault with any parameters."""
    return []


def plan(
    read: Read, job_id: str, user_id: str, now: datetime, exists: Callable[[str], bool], check: Check = anything_goes
) -> Planned | list[Fault]:
    """The job to write, or everything that is wrong with it. `now` is the database's time."""
    post, broken = read.post, read.broken
    faults = list(read.faults)
    if "task_id" not in broken and not exists(post.task_id):
        faults.append(Fault("/task_id", f"no task {post.task_id!r} is registered"))
    elif not broken & {"task_id", "parameters"}:
        faults += check(post.task_id, post.parameters)
    if broken & {"schedule", "timezone"}:
        _policies(post.policies, True, faults)
        return faults
    try:
        planned = _timing(post, job_id, now)
    except _Faulty as error:
        return faults + error.faults
    if faults:
        return faults
    planned.job.user_id = post.user_id or user_id
    return planned


class _Faulty(Exception):
    def __init__(self, *faults: Fault) -> None:
        self.faults = list(faults)


def _timing(post: JobPost, job_id: str, now: datetime) -> Planned:
    job = NewJob(
        job_id=job_id,
        user_id="",
        task_id=post.task_id,
        schedule_type=NOW,
        expression=None,
        timezone=_UTC,
        run_at=None,
        due_at=None,
        parameters=bytes(post.parameters).decode(),
        max_retries=post.max_retries,
        timeout_s=post.timeout_s,
        policies=None,
        overlap=None,
        expires_at=None,
        anchor_at=None,
    )
    if post.schedule is None and post.timezone is None and not post.policies:
        return Planned(job, _ONE_OFF, [])
    faults: list[Fault] = []
    try:
        asked = _asked(post)
    except _Faulty as error:
        _policies(post.policies, True, error.faults)
        raise
    policies = _RECURRING if asked.type == CRON else _ONE_OFF
    if post.policies:
        policies = _policies(post.policies, policies.recurring, faults)
    try:
        job.timezone = _UTC if asked.timezone is None else zone(asked.timezone).key
    except ScheduleError as error:
        faults.append(_fault(error, asked))
        asked = asked._replace(timezone=_UTC)
    warnings: list[str] = []
    job.schedule_type = asked.type
    try:
        if asked.type == CRON:
            _recur(job, asked, policies, now)
        elif asked.type == DATE:
            job.run_at, warnings = parse_date(asked.text, asked.timezone, now)
    except ScheduleError as error:
        faults.append(_fault(error, asked))
    if faults:
        raise _Faulty(*faults)
    if job.run_at is not None and asked.type == DATE and job.run_at < now:
        warnings.append("the date is in the past: the job starts now")
    if post.policies:
        if asked.type != CRON:
            _apply(policies, job, now)
        changed = policies.to_dict()
        job.policies = None if changed is None else msgspec.json.encode(changed).decode()
    return Planned(job, policies, warnings)


def _recur(job: NewJob, asked: _Asked, policies: Policies, now: datetime) -> None:
    assert asked.text is not None
    job.expression = asked.text.strip(" \t")
    job.anchor_at = now if is_every(job.expression) else None
    job.run_at = horizon.first(job.expression, job.timezone, policies, now, anchor=job.anchor_at)
    if job.run_at is None:
        raise ScheduleError("schedule.expression", "this schedule never runs within its bounds")


def _apply(policies: Policies, job: NewJob, now: datetime) -> None:
    """What policies mean for the one execution of a one-off job."""
    at = max(job.run_at or now, now)
    if policies.jitter_s:
        job.due_at = at + horizon.jitter(UUID(job.job_id), at, timedelta(seconds=policies.jitter_s))
    if policies.expires_after_s is not None:
        job.expires_at = (job.due_at or at) + timedelta(seconds=policies.expires_after_s)
    job.overlap = None if policies.overlap == "allow" else policies.overlap


def _policies(given: dict[str, Any] | None, recurring: bool, faults: list[Fault]) -> Policies:
    try:
        return Policies.from_dict(given, recurring)
    except ScheduleErrors as error:
        faults += [Fault("/" + one.field.replace(".", "/"), one.rule) for one in error.errors]
    except ScheduleError as error:
        faults.append(Fault("/" + error.field.replace(".", "/"), error.rule))
    return Policies.defaults(recurring=recurring)


def _asked(post: JobPost) -> _Asked:
    if isinstance(post.schedule, Schedule):
        return _from_object(post, post.schedule)
    at = "/schedule"
    text = post.schedule
    if text is None or text.strip().lower() == "now":
        return _Asked(NOW, None, post.timezone, at, "/timezone")
    if not text.strip():
        raise _Faulty(Fault(at, f"is empty; give {_FORMS}"))
    return _Asked(DATE if _LIKE_A_DATE.match(text) else CRON, text, post.timezone, at, "/timezone")


def _from_object(post: JobPost, schedule: Schedule) -> _Asked:
    faults: list[Fault] = []
    crons = {name: value for name in ("expression", "cron") if (value := getattr(schedule, name)) is not None}
    dates = {name: value for name in ("date", "run_at") if (value := getattr(schedule, name)) is not None}
    given = crons | dates
    kind = (schedule.type or (CRON if crons else DATE if dates else NOW)).upper()
    if len(given) > 1:
        names = " and ".join(given)
        faults += [Fault(f"/schedule/{name}", f"{names} exclude each other; give one") for name in given]
    elif kind == CRON and not crons:
        faults.append(Fault("/schedule/expression", "a schedule of type CRON needs an expression"))
    elif kind == DATE and not dates:
        faults.append(Fault("/schedule/date", "a schedule of type DATE needs a date"))
    elif (kind == CRON and dates) or (kind == DATE and crons) or (kind == NOW and given):
        faults += [Fault(f"/schedule/{name}", f"does not go with type {kind}") for name in given]
    if schedule.timezone is not None and post.timezone is not None:
        faults.append(Fault("/timezone", "is in the schedule, too; give it once"))
    if not schedule.type and not given:
        faults.append(Fault("/schedule", f"says no time; give {_FORMS}"))
    if faults:
        raise _Faulty(*faults)
    name, text = next(iter(given.items()), ("type", None))
    in_schedule = schedule.timezone is not None
    return _Asked(
        kind,
        text,
        schedule.timezone if in_schedule else post.timezone,
        f"/schedule/{name}",
        "/schedule/timezone" if in_schedule else "/timezone",
    )


def _fault(error: ScheduleError, asked: _Asked) -> Fault:
    if error.field == "schedule.timezone":
        return Fault(asked.timezone_pointer, error.rule)
    if error.field.startswith("policies."):
        return Fault("/" + error.field.replace(".", "/"), error.rule)
    hint = (
        f"; a schedule is {_FORMS}"
        if asked.pointer == "/schedule" and asked.text and len(asked.text.split()) < 5
        else ""
    )
    return Fault(asked.pointer, error.rule + hint)
