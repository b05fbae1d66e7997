"""How many executions a worker may hold at once, by the way they run."""

from __future__ import annotations

from dataclasses import dataclass, field

from workers.registry import Pool, Task


@dataclass
class Slots:
    """The places of one pool and the tasks that run in it; waiting for its time takes a place, too."""

    pool: Pool
    capacity: int
    tasks: dict[int, Task] = field(default_factory=dict)
    taken: int = 0

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.taken)

    @property
    def task_keys(self) -> list[int]:
        return list(self.tasks)
