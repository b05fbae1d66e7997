"""When a failed attempt is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass

DAY_S = 86_400.0


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off: `base_s · factor^(n-1)` seconds after the n-th failure, never more than `cap_s`.

    `jitter` is the share of it that is up to chance, 0 to 1, so that what failed together is not tried again together.
    """

    base_s: float = 5.0
    factor: float = 5.0
    cap_s: float = DAY_S
    jitter: float = 0.0

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` (1, 2, …) failed: 5, 25, 125, … by default."""
        try:
            delay = min(self.cap_s, self.base_s * self.factor ** (attempt - 1))
        except OverflowError:
            delay = self.cap_s
        return delay * (1 - self.jitter * random.random()) if self.jitter else delay
