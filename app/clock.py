"""One clock: the database's, read through this host's monotonic clock.

A host whose wall clock is wrong or steps still knows the database's time, because only the offset between the
monotonic clock and the database is ever used.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime

DRIFT = 200e-6
"""Seconds a second by which two clocks may part."""
SET_S = 1.0
"""A step of more is neither drift nor a long round trip: somebody has set the database's clock."""


class Clock:
    """The database's time as seen from this process, in seconds since the epoch.

    Until `observe` was called it follows this host's wall clock. An observation is bounded by its round trip: the
    database read its clock somewhere between `sent` and `received`. The smallest database time that is possible is
    taken, so that nothing starts early; its error is at most one round trip.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()
        self._bound = float("inf")
        self._observed = 0.0
        self.set_at = float("-inf")
        """When the database's clock was last seen to have been set, on the monotonic clock."""

    def now(self) -> float:
        """Seconds since the epoch on the database's clock (never ahead of it by more than its drift)."""
        return time.monotonic() + self._offset

    def now_utc(self) -> datetime:
        return datetime.fromtimestamp(self.now(), UTC)

    def observe(self, database_time: float, sent: float, received: float) -> None:
        """Takes in one reading: the database said `database_time` between the monotonic times `sent` and `received`."""
        bound = received - sent
        # At `received` the database's clock stood at database_time or later.
        offset = database_time - received
        # A tight old reading beats a loose new one, until drift or a step of the database's clock outweighs it: a round
        # trip takes seconds while a task holds the interpreter.
        known = self._bound + DRIFT * (received - self._observed)
        stepped = not (self._offset - 0.05 - bound <= offset <= self._offset + 0.05 + self._bound)
        if stepped and math.isfinite(self._bound) and abs(offset - self._offset) > SET_S:
            self.set_at = received
        if bound <= known * 1.5 or stepped:
            self._offset, self._bound, self._observed = offset, bound, received

    @property
    def offset(self) -> float:
        """Database time minus this host's monotonic clock, seconds: `call_at(due - clock.offset)`."""
        return self._offset


clock = Clock()


def in_utc(at: datetime, timespec: str = "auto") -> str:
    """`2026-03-08T07:00:00Z`, in ISO 8601: with a fraction where there is one, unless `timespec` says otherwise."""
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
