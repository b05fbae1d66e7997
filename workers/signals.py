"""What a task raises to say how its attempt should end, instead of failing.

from workers.signals import Retry, Snooze, Cancel

raise Retry(after=60)        # this attempt failed; the next one in a minute, if there are attempts left
raise Snooze(300)            # not now: again in five minutes, and this attempt does not count; a timedelta will do, too
raise Cancel("gone already") # there is nothing to do any more
"""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from numbers import Real

Duration = float | Decimal | timedelta
"""Seconds, or a timedelta."""


class Signal(Exception):
    """Base of the ways out below; an `except Exception` in the task takes them for errors of its own."""


class Retry(Signal):
    """The attempt failed; the next one is due `after` seconds from now, or after the task's back-off."""

    def __init__(self, reason: str = "the task asked to be tried again", *, after: Duration | None = None) -> None:
        self.reason = reason
        self.after = after
        super().__init__(reason)


class Snooze(Signal):
    """It is too early: the same attempt again in `seconds`, without being charged for this one."""

    def __init__(self, seconds: Duration, reason: str = "snoozed") -> None:
        self.seconds = seconds
        self.reason = reason
        super().__init__(reason)


class Cancel(Signal):
    """The execution ends as CANCELLED: there is nothing to do, and trying again would not help."""

    def __init__(self, reason: str = "the task cancelled itself") -> None:
        self.reason = reason
        super().__init__(reason)


class Rejected(Signal):
    """The execution has failed for good: trying again would not help."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def in_seconds(said: object) -> float | None:
    """A duration in seconds; None when it is no duration."""
    if isinstance(said, timedelta):
        return said.total_seconds()
    if not isinstance(said, Real | Decimal):
        return None
    try:
        return float(said)
    except (ValueError, OverflowError):  # a signalling NaN, 10 ** 400
        return math.inf
