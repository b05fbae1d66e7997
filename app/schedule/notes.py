"""Sentences about daylight saving, for previews: which runs it moved, doubled or left out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from app.schedule.walls import Shift, shift_at, shifts, wall_of

if TYPE_CHECKING:
    from app.schedule.cron import Cron

_TICK = timedelta(microseconds=1)


def daylight_note(cron: Cron, at: datetime, since: datetime | None) -> str | None:
    """What is odd about the run at `at`, or None. With `since`, the run before it, also what was left out between."""
    parts = []
    for gap in shifts(cron.zone, since or at - _TICK, at):
        if gap.gap and (walls := cron.walls_left_out(gap)):
            parts.append(_jump(cron, gap, walls, at))
    wall = wall_of(at, cron.zone)
    shift = shift_at(wall.replace(fold=0), cron.zone)
    if shift is not None and not shift.gap:
        this = "second" if wall.fold else "first"
        which = f"this is the {this}" if cron.real_time or cron.fold == "both" else f"runs at the {this}"
        parts.append(f"clock goes back: {clock_time(wall)} happens twice on {wall:%Y-%m-%d}, {which}")
    return "; ".join(parts) or None


def _jump(cron: Cron, gap: Shift, walls: list[datetime], at: datetime) -> str:
    named = (
        " and ".join(clock_time(wall) for wall in walls[:2]) if len(walls) < 3 else f"{clock_time(walls[0])} and more"
    )
    verb = "does" if len(walls) == 1 else "do"
    what = f"clock jumps forward: {named} {verb} not exist on {walls[0]:%Y-%m-%d}"
    moved = gap.instant == at and not cron.real_time and cron.gap == "run_at_transition"
    return f"{what}, {f'runs at {clock_time(gap.high)}' if moved else 'left out'}"


def clock_time(wall: datetime) -> str:
    """`02:30`, or `02:30:15` when there are seconds."""
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
