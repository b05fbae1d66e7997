"""What pages with lists share: filters from the address, pages by cursor, refusals next to the filters."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import request

from app.clock import clock, in_utc
from app.dashboard import backend, session
from app.dashboard.backend import Refused
from app.schedule.dates import parse_date
from app.schedule.errors import ScheduleError

_TIMES = ("start_time", "end_time")


@dataclass
class Wanted:
    """The filters of a list: as they were typed, as the API takes them, and what is wrong with them."""

    typed: dict[str, str]
    query: dict[str, Any]
    refusal: str | None = None
    active: bool = field(default=False)

    def read(self, path: str, limit: int) -> dict[str, Any]:
        """A page of the list; an empty one with a refusal when the filters say nothing usable."""
        if self.refusal:
            return {}
        try:
            found: dict[str, Any] = backend.get(path, **self.query, limit=limit, cursor=request.args.get("cursor"))
        except Refused as refused:
            if refused.status != 400:
                raise
            self.refusal = refused.detail
            return {}
        return found


def query(*names: str, times: bool = False) -> Wanted:
    """Reads the filters of these names from the address; times are in the viewer's zone."""
    given = [*names, *(_TIMES if times else ())]
    typed = {name: text for name in given if (text := request.args.get(name, "").strip())}
    wanted = Wanted(typed, {name: text for name, text in typed.items() if name not in _TIMES}, active=bool(typed))
    for name in _TIMES:
        if name in typed:
            try:
                at, _ = parse_date(typed[name], session.viewer_zone().key, datetime(9000, 1, 1, tzinfo=UTC), field=name)
            except ScheduleError as error:
                wanted.refusal = f"{name.replace('_', ' ')}: {error.rule}"
            else:
                wanted.query[name] = in_utc(at)
    return wanted


def following(cursor: str | None) -> dict[str, str] | None:
    """The address parameters of the next page, or None at the end."""
    if cursor is None:
        return None
    return {name: text for name, text in request.args.items() if name != "said"} | {"cursor": cursor}


def at(ahead: timedelta) -> str:
    """The time so far ahead, as the API takes it."""
    return in_utc(clock.now_utc() + ahead)


def soon() -> str:
    """The end of what is due: a second ahead, for what is about to start."""
    return at(timedelta(seconds=1))


def task_names() -> list[str]:
    return sorted(backend.services().tasks.names().values())
