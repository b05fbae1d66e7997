"""How often one token, or one address where there are no tokens, may ask: a bucket for each that fills at a rate."""

from __future__ import annotations

import threading
import time

BURST_S = 2.0
"""A bucket holds what comes together in so many seconds."""
MOST_BUCKETS = 100_000


class Rates:
    """Buckets of one process. Safe to share between threads."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._lock = threading.Lock()
        self._empty_at: dict[str, float] = {}

    def pause_s(self, name: str, now: float | None = None) -> float:
        """0 when `name` may go on; else how many seconds it should wait, and this request does not count."""
        now = time.monotonic() if now is None else now
        step = 1 / self._per_s
        with self._lock:
            if len(self._empty_at) >= MOST_BUCKETS:
                self._empty_at = {name: at for name, at in self._empty_at.items() if at > now}
            # The bucket as the time at which all that was asked for would be used up at the rate.
            at = max(self._empty_at.get(name, 0.0), now)
            full = now + max(BURST_S, step)
            if at + step > full:
                return at + step - full
            self._empty_at[name] = at + step
        return 0.0
