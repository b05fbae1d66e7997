"""The tasks this worker knows: functions registered under a task_id, with how they are to be run.

    @task("send_email", max_retries=3, timeout=30)
    async def send_email(to: str, subject: str) -> None: ...

A job's parameters become keyword arguments. Async functions run on the event loop and must not block it; plain
functions run in threads; `isolation="process"` runs either kind in a child process of its own.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from app.domain.ids import TASK_ID, TASK_ID_RULE
from app.domain.limits import Limits
from app.domain.retry import Backoff
from app.errors import PgtickError, SettingsError
from workers.signature import Schema, parameters_schema

Pool = Literal["async", "thread", "process"]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Task:
    """A registered function and its policy; `timeout` is in seconds. `schema` is that of its parameters."""

    task_id: str
    function: Callable[..., Any]
    pool: Pool
    queue: str = "default"
    priority: int = 2
    max_retries: int = 3
    backoff: Backoff = field(default_factory=Backoff)
    timeout: float | None = None
    limits: Limits = field(default_factory=Limits)
    schema: Schema | None = None
    is_endpoint: bool = False
    """Whether it calls an HTTP endpoint: no module registers it, and it cannot be run in a child process."""
    limited: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limited", bool(self.limits))

    @property
    def target(self) -> str:
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def description(self) -> str | None:
        return (inspect.getdoc(self.function) or "").partition("\n")[0] or None


class DuplicateTask(PgtickError):
    """Two different functions under one task_id."""


registered: dict[str, Task] = {}


def task(
    task_id: str,
    *,
    queue: str = "default",
    priority: int = 2,
    max_retries: int = 3,
    timeout: float | None = None,
    backoff: Backoff | None = None,
    isolation: Literal["process"] | None = None,
    max_concurrent: int | None = None,
    concurrency_key: str | None = None,
    max_per_key: int | None = None,
    rate_per_s: float | None = None,
) -> Callable[[Function], Function]:
    """Registers the decorated function as a task; the function itself is returned unchanged.

    `priority` is 1 (first) to 4; `timeout` in seconds, none by default; 1 + `max_retries` attempts in all. Limits hold
    for all workers together: `max_concurrent` executions at once, `max_per_key` of them with one value of the parameter
    `concurrency_key`, and `rate_per_s` starts a second.
    """
    if not isinstance(task_id, str):
        raise TypeError('a task needs a name: @task("send_email"), not @task')
    if not TASK_ID.fullmatch(task_id):
        raise ValueError(f"a task_id is {TASK_ID_RULE}, not {task_id!r}")
    limits = Limits(max_concurrent, concurrency_key, max_per_key, rate_per_s)
    for name, rule in limits.faults():
        raise ValueError(f"{name} of task {task_id!r}: {rule}")
    if not 1 <= priority <= 4:
        raise ValueError(f"priority of task {task_id!r}: must be 1 (first) to 4, not {priority}")
    if not 0 <= max_retries <= 1000:
        raise ValueError(f"max_retries of task {task_id!r}: must be 0 to 1000, not {max_retries}")
    if timeout is not None and timeout <= 0:
        raise ValueError(f"timeout of task {task_id!r}: must be greater than 0, not {timeout}")

    def register(function: Function) -> Function:
        pool: Pool = isolation or ("async" if inspect.iscoroutinefunction(function) else "thread")
        new = Task(
            task_id=task_id,
            function=function,
            pool=pool,
            queue=queue,
            priority=priority,
            max_retries=max_retries,
            backoff=backoff or Backoff(),
            timeout=timeout,
            limits=limits,
            schema=parameters_schema(function),
        )
        old = registered.get(task_id)
        if old is not None and old.target != new.target:
            raise DuplicateTask(f"task {task_id!r} is registered by {old.target} and by {new.target}")
        registered[task_id] = new
        return function

    return register


def load(modules: Iterable[str]) -> dict[str, Task]:
    """Imports the modules and returns every task registered by then, by task_id.

    Raises SettingsError for a module that is not there; what goes wrong inside of one comes as it is.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise  # one that the module itself wants
            raise SettingsError(
                [f"PGTICK_TASKS: there is no module {module}: neither in {os.getcwd()} nor installed"]
            ) from None
    return dict(registered)
