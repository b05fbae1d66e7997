"""The database: partitions on a time axis, how far they reach, and what keeps old rows from being removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flask import Response

from app.clock import clock
from app.dashboard import backend, formats, session
from app.dashboard.backend import Answer, Refused
from app.dashboard.blueprint import blueprint, page
from app.store import monitoring

BACK = timedelta(hours=48)
AHEAD = timedelta(hours=48)
ROOM = timedelta(hours=3)
"""What half the name of a day takes beside its midnight."""
WIDE, LEFT, TALL = 960, 4, 44
NAMES = {
    "finished_executions": "Finished executions",
    "pending_executions": "Pending executions",
    "execution_stats": "Statistics",
    "jobs": "Jobs",
}


@dataclass
class Block:
    x: float
    width: float
    y: float
    height: float
    text: str


@dataclass
class Lane:
    """The partitions of one table around now: the higher, the larger."""

    name: str
    blocks: list[Block]
    count: int
    bytes: int
    rows: int
    first: datetime
    until: datetime


@blueprint.get("/ui/database")
def database() -> Response:
    if not session.viewer().operates:
        raise Refused(Answer(403, {"detail": "The database is shown to the roles operator and admin."}))
    found, partitions = backend.run(
        lambda c: (
            {
                "server": monitoring.server(c),
                "snapshots": monitoring.old_snapshots(c),
                "queues": monitoring.queues(c),
                "findings": monitoring.findings(c),
                # Looks at everything that is late: a large backlog is told by the queues.
                "stuck": monitoring.stuck(c) if monitoring.state(c)["late"] < monitoring.MOST_COUNTED else [],
            },
            monitoring.partitions(c),
        )
    )
    now = clock.now_utc()
    made = {name: lane(label, [p for p in partitions if p["parent"] == name], now) for name, label in NAMES.items()}
    lanes = [one for one in made.values() if one is not None]
    return page(
        "database.html",
        lanes=lanes,
        runway=min((one.until for one in lanes), default=None),
        now_x=round(LEFT + BACK / (BACK + AHEAD) * (WIDE - 2 * LEFT), 1),
        ticks=ticks(now),
        wide=WIDE,
        tall=TALL,
        **found,
    )


def lane(name: str, partitions: Sequence[dict[str, Any]], now: datetime) -> Lane | None:
    if not partitions:
        return None
    near = [p for p in partitions if p["until_at"] > now - BACK and p["from_at"] < now + AHEAD]
    largest = max((p["bytes"] for p in near), default=0) or 1
    where = session.viewer_zone()
    blocks = []
    for one in near:
        low, high = _x(one["from_at"], now), _x(one["until_at"], now)
        height = 3 + (TALL - 4) * one["bytes"] / largest
        text = (
            f"{one['from_at'].astimezone(where):%a %d %b %H:%M}: {formats.size(one['bytes'])}, "
            f"about {formats.plural(one['estimated_rows'], 'row')}"
        )
        blocks.append(Block(low, round(max(high - low - 0.8, 0.5), 2), round(TALL - height, 1), round(height, 1), text))
    return Lane(
        name,
        blocks,
        len(partitions),
        sum(p["bytes"] for p in partitions),
        sum(p["estimated_rows"] for p in partitions),
        partitions[0]["from_at"],
        partitions[-1]["until_at"],
    )


def ticks(now: datetime) -> list[tuple[float, str]]:
    """Midnights of the viewer around now; one so near to an end that its name would be cut off is left out."""
    where = session.viewer_zone()
    day = now.astimezone(where).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [day + timedelta(days=n) for n in range(-2, 4)]
    return [(_x(at, now), f"{at:%a %d}") for at in days if now - BACK + ROOM < at < now + AHEAD - ROOM]


def _x(at: datetime, now: datetime) -> float:
    place = min(max((at - now + BACK) / (BACK + AHEAD), 0), 1)
    return round(LEFT + place * (WIDE - 2 * LEFT), 2)
