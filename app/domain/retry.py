"""When a failed attempt is tried again."""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 86_400.0


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off: `base_s · factor^(n-1)` seconds after the n-th failure, never more than `cap_s`."""

    base_s: float = 5.0
    factor: float = 5.0
    cap_s: float = DAY_S

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` (1, 2, …) failed: 5, 25, 125, … by default."""
        try:
            return min(self.cap_s, self.base_s * self.factor ** (attempt - 1))
        except OverflowError:
            return self.cap_s
