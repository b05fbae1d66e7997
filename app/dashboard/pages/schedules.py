"""Schedules: what stands ahead, and how busy the coming week gets."""

from __future__ import annotations

from datetime import datetime, timedelta

from flask import Response, request

from app.clock import clock
from app.dashboard import backend, plots, session
from app.dashboard.blueprint import blueprint, page
from app.dashboard.pages.jobs import in_words
from app.dashboard.pages.overview import WEEK_HOURS, forecast
from app.domain.ids import parse_uuid
from app.store import monitoring

LIMIT = 50
STATES = ("ACTIVE", "PAUSED", "BROKEN", "ENDED")


@blueprint.get("/ui/schedules")
def schedules() -> Response:
    only, state = session.viewer().only, request.args.get("state")
    state = state if state in STATES else None
    rows, states = backend.run(
        lambda c: (
            monitoring.schedules(c, only, state, _after(request.args.get("after")), LIMIT + 1),
            monitoring.schedule_states(c, only),
        )
    )
    start = clock.now_utc().replace(minute=0, second=0, microsecond=0)
    hours, left = forecast(start, WEEK_HOURS)
    busiest = max(range(len(hours)), key=hours.__getitem__)
    shown = rows[:LIMIT]
    for row in shown:
        row["words"] = (
            "once"
            if row["schedule"] == "once"
            else in_words({"type": "CRON", "expression": row["schedule"], "timezone": row["timezone"]})
        )
    following = None
    if len(rows) > LIMIT and shown[-1]["next_run_at"]:
        after = f"{shown[-1]['next_run_at'].isoformat()}/{shown[-1]['job_id']}"
        following = {"after": after} | ({"state": state} if state else {})
    return page(
        "schedules.html",
        rows=shown,
        states=states,
        state=state,
        known=STATES,
        grid=plots.heat(start, hours),
        total=sum(hours),
        busiest=(start + timedelta(hours=busiest), hours[busiest]),
        uncounted=left,
        next=following,
    )


def _after(text: str | None) -> tuple[datetime, str] | None:
    """The place to go on from; the beginning for what is no place."""
    at, _, job_id = (text or "").partition("/")
    known = parse_uuid(job_id)
    try:
        return (datetime.fromisoformat(at.replace(" ", "+")), known) if known else None
    except ValueError:
        return None
