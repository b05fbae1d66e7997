"""The query parameters of listings. Nothing is ignored: what cannot be understood is refused by name."""

from __future__ import annotations

import re
from datetime import datetime

from flask import request

from app.api import auth
from app.api.pagination import read_cursor, read_limit
from app.api.problems import bad_parameter
from app.api.services import current
from app.domain.execution import STATUSES
from app.domain.job import SCHEDULE_TYPES
from app.schedule.dates import parse_instant
from app.schedule.errors import ScheduleError
from app.store.search import Filter, Position

LISTING = (
    "user_id",
    "status",
    "task_id",
    "start_time",
    "end_time",
    "schedule_type",
    "error",
    "sort",
    "limit",
    "cursor",
)
LONGEST = {"user_id": 200, "task_id": 200}
NEWEST_FIRST = "-scheduled_at"
SORTS = (NEWEST_FIRST, "scheduled_at")
# `+02:00` unescaped in a query arrives as ` 02:00`.
_LOST_PLUS = re.compile(r"(.+[T ]\d\d:?\d\d.*) (\d\d:?\d\d)", re.ASCII)


def read_listing(job_id: str | None = None) -> tuple[Filter, Position | None, int]:
    """What to list, from where, and how much; raises a problem that names the parameter at fault."""
    refuse_unknown(*LISTING)
    start, end = _time("start_time"), _time("end_time")
    if start and end and start >= end:
        raise bad_parameter("end_time", "must be later than start_time")
    task_id = text_of("task_id")
    wanted = Filter(
        user_id=auth.user_to_list(text_of("user_id")),
        task=None if task_id is None else _task(task_id),
        statuses=_statuses(),
        start=start,
        end=end,
        job_id=job_id,
        kind=_one_of("schedule_type", SCHEDULE_TYPES),
        error=_lower(text_of("error")),
        oldest_first=(_one_of("sort", SORTS) or NEWEST_FIRST) != NEWEST_FIRST,
    )
    return wanted, read_cursor(text_of("cursor")), read_limit(text_of("limit"))


def read_flag(name: str) -> bool:
    """A parameter that is `true` or `false`, and false when it is not there."""
    if not request.query_string:
        return False
    text = (text_of(name) or "false").lower()
    if text not in ("true", "false"):
        raise bad_parameter(name, "must be true or false")
    return text == "true"


def refuse_unknown(*known: str) -> None:
    """Nothing but these."""
    for name in request.args:
        if name not in known:
            there_are = f"; there are {', '.join(known)}" if known else " here"
            raise bad_parameter(name[:100], f"there is no such parameter{there_are}")


def text_of(name: str) -> str | None:
    """A parameter of the query; None where it was left out. Given twice, empty or too long, it is a 400."""
    values = request.args.getlist(name)
    if not values:
        return None
    if len(values) > 1:
        raise bad_parameter(name, "is there more than once")
    if not values[0] or "\0" in values[0] or len(values[0]) > LONGEST.get(name, 1000):
        raise bad_parameter(name, "has no usable value")
    return values[0]


def _statuses() -> frozenset[str] | None:
    """One or several, separated by commas or given again."""
    if "status" not in request.args:
        return None
    words = [word.strip().upper() for text in request.args.getlist("status") for word in text.split(",")]
    for word in words:
        if word not in STATUSES:
            raise bad_parameter("status", f"{word[:40]!r} is not a status; there are {', '.join(STATUSES)}")
    return frozenset(words)


def _one_of(name: str, words: tuple[str, ...]) -> str | None:
    text = text_of(name)
    word = text if text is None or text in words else text.upper()
    if word is not None and word not in words:
        raise bad_parameter(name, f"{word[:40]!r} is none; there are {', '.join(words)}")
    return word


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _time(name: str) -> datetime | None:
    text = text_of(name)
    if text is None:
        return None
    try:
        found = _LOST_PLUS.fullmatch(text.strip())
        return parse_instant(f"{found[1]}+{found[2]}" if found else text.strip(), name)
    except ScheduleError as error:
        raise bad_parameter(name, error.rule) from None


def _task(task_id: str) -> tuple[str, int]:
    key = current().tasks.key(task_id)
    if key is None:
        raise bad_parameter("task_id", f"no task {task_id[:200]!r} is registered")
    return task_id, key
