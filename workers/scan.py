"""Where a claim looks: from which due time on, and in which hours of pending executions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from workers.execution import DUE_AT, PRIORITY

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
NEVER = datetime(2200, 1, 1, tzinfo=UTC)
"""Nothing is due so late."""
HOUR = timedelta(hours=1)
LANES = (1, 2, 3, 4)
NEAR_MARGIN_S = 0.1
FAR_MARGIN_S = 5.0
"""What comes in late without a wake-up is this far behind at most, save for what the sweeper finds. Each claim looks
through the near one, and one a poll through the far one.
"""
BACKLOG_S = 2.0
"""What is due for longer is one."""


@dataclass
class Scan:
    """Where one pool's next claim begins, for each priority.

    A floor is the oldest due time that can still be waiting: dead index entries behind it cost nothing, even while an
    old snapshot keeps VACUUM from removing them, nor does what other pools have to do. Wake-ups lower it; what comes in
    behind it without one is found by a look back once a poll, and by the sweeper.
    """

    floors: list[datetime] = field(default_factory=lambda: [BEGINNING] * len(LANES))
    told: list[datetime] = field(default_factory=lambda: [NEVER] * len(LANES))
    """What the floors were lowered to since the claim under way began, which may not have seen it."""
    looked_back_at: float = float("-inf")
    backlog: bool = False
    fresh_first: bool = False
    """Whether the claim under way leaves the backlog alone: then it says nothing about what is behind."""
    held_back: bool = False
    """Whether the last claim was full of what is not due yet and had to go back: the next one leaves that alone."""

    def lower(self, due: datetime, lanes: Sequence[int] = LANES) -> None:
        for lane in lanes:
            self.floors[lane - 1] = min(self.floors[lane - 1], due)
            self.told[lane - 1] = min(self.told[lane - 1], due)

    def begin(self, now: float, look_back_s: float) -> list[datetime]:
        """The floors of the claim that begins now; every `look_back_s` it looks further back."""
        # Behind a backlog what is due right now must not starve: every other claim takes the fresh ones first.
        self.fresh_first = self.backlog and not self.fresh_first
        if time.monotonic() - self.looked_back_at >= look_back_s:
            self.looked_back_at = time.monotonic()
            self.lower(datetime.fromtimestamp(now - FAR_MARGIN_S, UTC))
        if self.fresh_first:
            return [max(floor, datetime.fromtimestamp(now - BACKLOG_S, UTC)) for floor in self.floors]
        self.told = [NEVER] * len(LANES)
        return list(self.floors)

    def seen(self, rows: Sequence[Any], now: float, *, full: bool) -> None:
        """Moves the floors to where the claim that returned these rows has left nothing behind."""
        if self.fresh_first:
            return
        last_lane = max((row[PRIORITY] for row in rows), default=LANES[0]) if full else LANES[-1]
        for lane in LANES[:last_lane]:
            oldest = min((row[DUE_AT] for row in rows if row[PRIORITY] == lane), default=now)
            if not (full and lane == last_lane):
                oldest = min(oldest, now)
            self.floors[lane - 1] = min(datetime.fromtimestamp(oldest - NEAR_MARGIN_S, UTC), self.told[lane - 1])
        self.backlog = full and min(row[DUE_AT] for row in rows) < now - BACKLOG_S


def partition_of(at: datetime) -> str:
    """The partition of pending_executions for what is due then, as `pgtick.make_partition` names it."""
    return f"pending_executions_{at:%Y%m%d_%H}00"


def partitions_between(floor: datetime, until: datetime) -> list[str]:
    """The partitions of these hours, whether they exist or not."""
    hours = range(int((until - floor) / HOUR) + 2)
    return [name for name in (partition_of(floor + n * HOUR) for n in hours) if name <= partition_of(until)]


Look = tuple[str | None, list[datetime]]
"""A partition (None: all of them at once), and from where to look in it for each priority."""


def looks_at(floors: list[datetime], partitions: list[str]) -> list[Look]:
    """Where a claim looks, in this order: by priority first, by time then.

    One partition can do that itself. Of several, all are looked at for one priority before the next one's turn.
    """
    if len(partitions) == 1:
        return [(partitions[0], floors)]
    looks: list[Look] = []
    for lane in LANES:
        only = [floor if lane == other else NEVER for other, floor in zip(LANES, floors, strict=True)]
        looks += [(name, only) for name in partitions if name >= partition_of(floors[lane - 1])]
    return looks
