"""A slow, separate statement of the rules of time, to judge the fast one by, and zones made for tests."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def walls(expression: str, low: datetime, high: datetime) -> Iterator[datetime]:
    """Matching walls in [low, high) by cronsim, which knows no zones here."""
    for wall in CronSim(expression, low - MINUTE / 60):
        if wall >= high:
            return
        yield wall


Shown = dict[datetime, list[datetime]]


def shown(zone: ZoneInfo, low: datetime, high: datetime) -> Shown:
    """The instants, whole minutes, at which each wall is shown, from a day before to a day after."""
    found: Shown = {}
    at = low - DAY
    while at < high + DAY:
        found.setdefault(at.astimezone(zone).replace(tzinfo=None, fold=0), []).append(at)
        at += MINUTE
    return found


def runs(expression: str, shown: Shown, low: datetime, high: datetime, gap: str, fold: str) -> list[datetime]:
    """The instants in [low, high), found by looking at every minute's wall."""
    minute, hour = expression.split()[-5:-3]
    real_time = minute.startswith("*") or hour.startswith("*")
    dates = {wall.date() for wall in shown}
    found: set[datetime] = set()
    for wall in walls(expression, min(shown), max(shown)):
        instants = shown.get(wall, [])
        if real_time:
            found.update(instants)
        elif instants:
            found.update(instants if fold == "both" else [instants[-1 if fold == "second" else 0]])
        elif gap == "run_at_transition" and wall.date() in dates:
            found.add(shown[min(other for other in shown if other > wall)][0])
    return sorted(at for at in found if low <= at < high)


def zone_from_rule(rule: str) -> ZoneInfo:
    """A zone from a POSIX rule such as `EST5EDT,M3.2.0,M11.1.0`, independent of any release of the zone data."""
    header = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    body = struct.pack(">lbb", 0, 0, 0) + b"LMT\0"
    return ZoneInfo.from_file(io.BytesIO((header + body) * 2 + b"\n" + rule.encode() + b"\n"), key=rule)


def utc(text: str) -> datetime:
    """`2026-03-08T07:00` as an instant."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
