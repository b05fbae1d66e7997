"""The first page: is it on time, what failed, what comes next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from flask import Response

from app.clock import clock
from app.dashboard import backend, formats, listings, plots, session
from app.dashboard.blueprint import blueprint, page
from app.schedule.busy import starts_per_hour
from app.store import monitoring
from app.store.monitoring import Row
from app.store.pool import Connection

SPAN = 60
SHOWN = 8
MOST_GRIDS = 5_000
MOST_VIEWERS = 100
FORECAST_HOURS = 12
WEEK_HOURS = 7 * 24
_PROMISE_S = 2.0


class Verdict(NamedTuple):
    """The answer of the page in one sentence; `mood` is good, warn or bad."""

    mood: str
    title: str
    detail: str


@blueprint.get("/")
def overview() -> Response:
    return page("overview.html", **_read())


def _read() -> dict[str, Any]:
    only = session.viewer().only

    def read(connection: Connection) -> dict[str, Any]:
        return {
            "state": monitoring.state(connection),
            "rows": monitoring.minutes(connection, SPAN),
            "late": (late := monitoring.late(connection, only, SHOWN)),
            "why": monitoring.explain(connection, late[0]["execution_id"]) if late else None,
            "retrying": monitoring.retrying(connection),
            "findings": monitoring.findings(connection) if only is None else [],
        }

    found = backend.run(read)
    state = found["state"]
    failures = backend.get("/executions", status="FAILED", limit=SHOWN, end_time=listings.soon())["executions"]
    rows: list[Row] = found.pop("rows")
    now = clock.now_utc()
    hour = now.replace(minute=0, second=0, microsecond=0)
    hours, left = forecast(hour, FORECAST_HOURS)
    return found | {
        "next_runs": _next_runs() if only is None else [],
        "verdict": with_pauses(verdict(state, rows, found.pop("why")), state["paused_tasks"]),
        "plots": plots_of(rows, now) if rows else [],
        "failures": failures,
        "within": _share(sum(row["within"] for row in rows), sum(row["started"] for row in rows)),
        "failed": sum(row["failed"] for row in rows),
        "hours": [(hour + timedelta(hours=n), starts) for n, starts in enumerate(hours)],
        "uncounted": left,
    }


def verdict(state: Row, rows: Sequence[Row], why: str | None) -> Verdict:
    """What somebody who was just woken up has to know first."""
    if state["workers"] == 0:
        waits = _many(state["waiting"], "execution is", "executions are") if state["waiting"] else "Nothing is"
        return Verdict("bad", "No worker is alive", f"Start a worker: pgtick worker. {waits} due and waiting.")
    if state["late"]:
        return Verdict(
            "bad",
            f"{_many(state['late'], 'execution is', 'executions are')} late",
            f"Due for more than 2 s and not started. The oldest: {why}"
            if why
            else "Due for more than 2 s and not started.",
        )
    started, within = sum(row["started"] for row in rows), sum(row["within"] for row in rows)
    if not started:
        return Verdict("good", "Nothing is late", "No execution started within the last hour.")
    counted = f"{formats.plural(started, 'start')} in the last hour, {formats.share(within / started)} within 2 s."
    if within < started * 0.999:
        return Verdict("warn", "On time now, but not all of the last hour", counted)
    failed = sum(row["failed"] for row in rows)
    if failed:
        return Verdict("warn", f"On time; {formats.plural(failed, 'execution')} failed for good", counted)
    return Verdict("good", "Everything is on time", counted)


def with_pauses(verdict: Verdict, tasks: int) -> Verdict:
    """What waits for a paused task is not late; whoever misses its starts has to see why."""
    if not tasks:
        return verdict
    held = formats.plural(tasks, "task is paused and starts nothing", "tasks are paused and start nothing")
    return verdict._replace(detail=f"{verdict.detail} {held}.")


def _many(number: int, one: str, many: str) -> str:
    most = monitoring.MOST_COUNTED
    return f"More than {most - 1:,} {many}" if number >= most else formats.plural(number, one, many)


def plots_of(rows: Sequence[Row], now: datetime) -> list[plots.Plot]:
    """The four plots of the last hour, which ends with the running minute: of that one there is no rate yet."""
    this_minute = now.replace(second=0, microsecond=0)
    times = [this_minute - timedelta(minutes=SPAN - 1 - n) for n in range(SPAN)]
    by_minute = {row["minute"]: row for row in rows}

    def values(take: Callable[[Row], float | None]) -> list[float | None]:
        return [take(by_minute[at]) if at in by_minute else None for at in times]

    axis = plots.Minutes(times)
    started = [*values(lambda row: row["started"] / 60)[:-1], None]
    failed, retried = values(lambda row: row["failed"]), values(lambda row: row["retried"])
    p50 = values(lambda row: _seconds(row["p50_ms"]))
    p99 = values(lambda row: _seconds(row["p99_ms"]))
    total, within = sum(row["started"] for row in rows), sum(row["within"] for row in rows)
    worst = max((value for value in p99 if value is not None), default=None)
    return [
        axis.bars(
            "Starts per second",
            f"{formats.count(total / SPAN / 60)} on average",
            [("started", "started/s", started)],
            "",
        ),
        axis.share(
            "Started within 2 s",
            f"{formats.share(_share(within, total))} of the hour",
            "within",
            "within 2 s",
            values(lambda row: _share(row["within"], row["started"])),
        ),
        axis.log(
            "Lateness of starts",
            f"p99 at most {formats.span(worst)}",
            [("p50", "p50", p50), ("p99", "p99", p99)],
            (_PROMISE_S, "2 s"),
        ),
        axis.bars(
            "Failures per minute",
            f"{formats.count(sum(filter(None, failed)))} for good, {formats.count(sum(filter(None, retried)))} retried",
            [("failed", "failed for good", failed), ("retried", "retried", retried)],
            "",
        ),
    ]


class _Kept:
    """Something that is costly to read and may be some seconds old; one for each viewer."""

    def __init__(self, life_s: float) -> None:
        self._life_s = life_s
        self._known: dict[object, tuple[float, Any]] = {}

    def get(self, of: object, read: Callable[[], Any]) -> Any:
        now = time.monotonic()
        read_at, value = self._known.get(of, (float("-inf"), None))
        if now - read_at > self._life_s:
            if len(self._known) > MOST_VIEWERS:
                self._known.clear()
            value = read()
            self._known[of] = now, value
        return value


_waiting, _grids, _next = _Kept(10), _Kept(30), _Kept(5)


def _next_runs() -> list[Row]:
    found: list[Row] = _next.get(backend.services().pool, lambda: backend.run(lambda c: monitoring.next_runs(c, SHOWN)))
    return [row for row in found if row["scheduled_at"] > clock.now_utc()]


def forecast(start: datetime, hours: int) -> tuple[list[int], int]:
    """Starts in each hour from `start` on, and how many recurring jobs there was no time to count."""
    only = session.viewer().only
    of = backend.services().pool, only
    until = start + timedelta(hours=WEEK_HOURS)
    grids = _grids.get(of, lambda: backend.run(lambda c: monitoring.grids(c, only, MOST_GRIDS)))
    pending = _waiting.get(of, lambda: backend.run(lambda c: monitoring.coming(c, only, until)))
    busy = starts_per_hour(grids, start, hours)
    return [n + pending.get(start + timedelta(hours=at), 0) for at, n in enumerate(busy.starts)], busy.left


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000
