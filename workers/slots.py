"""How many executions a worker may hold at once, by the way they run."""

from __future__ import annotations

from dataclasses import dataclass, field

from workers.registry import Pool, Task


@dataclass
class Slots:
    """The slots of one pool and the tasks that run in it; waiting for its time takes a slot, too."""

    pool: Pool
    capacity: int
    tasks: dict[int, Task] = field(default_factory=dict)
    taken: int = 0
    waiting: int = 0
    """Of those taken, the ones whose time has not come."""
    limited: list[int] = field(init=False)
    """Keys of tasks whose executions have to be let in first."""

    def __post_init__(self) -> None:
        self.know(self.tasks)

    def know(self, tasks: dict[int, Task]) -> None:
        """From now on these are the tasks that run here."""
        self.tasks = tasks
        self.limited = [key for key, task in tasks.items() if task.limited]

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.taken)

    @property
    def inviting(self) -> bool:
        """Whether free slots are worth a claim now: a quarter is free, or none of the others waits.

        What is not claimed yet is due after what waits here, so there is time to gather slots for a larger claim.
        """
        return 4 * self.free >= self.capacity or not self.waiting
