"""Limits of a task that hold for all workers together."""

from __future__ import annotations

from dataclasses import dataclass

HELD = 4
"""Added to the priority of what a limit, or a pause of the task, may hold back: it is out of sight of claims."""


@dataclass(frozen=True)
class Limits:
    """How many executions of a task run at once, overall and for each value of a parameter, and start per second.

    `concurrency_key` names the parameter, `a.b` one inside another; executions without it share a value of their own.
    """

    max_concurrent: int | None = None
    concurrency_key: str | None = None
    max_per_key: int | None = None
    rate_per_s: float | None = None

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return not (self.max_concurrent is None and self.max_per_key is None and self.rate_per_s is None)

    def faults(self) -> list[tuple[str, str]]:
        """What is wrong with them: each the name of a field, and the rule."""
        found = [
            (name, "must be greater than 0")
            for name in ("max_concurrent", "max_per_key", "rate_per_s")
            if (value := getattr(self, name)) is not None and not value > 0
        ]
        if (self.concurrency_key is None) != (self.max_per_key is None):
            name = "concurrency_key" if self.concurrency_key is None else "max_per_key"
            found.append((name, "concurrency_key and max_per_key go together"))
        return found

    def stored_priority(self, priority: int) -> int:
        """The priority that rows of the task carry."""
        return priority + HELD if self else priority


def nominal_priority(stored: int) -> int:
    """The priority, 1 to 4, of a task whose rows carry this one."""
    return (stored - 1) % HELD + 1
