"""The errors of pgtick: a small tree, each with its facts in the message."""

from __future__ import annotations

MISCONFIGURED = 78
"""Exit status for settings that cannot work, and for a database that is not migrated (EX_CONFIG of sysexits.h)."""


class PgtickError(Exception):
    """Base of all errors that pgtick raises itself."""


class SettingsError(PgtickError):
    """Settings that cannot work together; `faults` has a sentence for each."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class UnknownTask(PgtickError):
    """A task_id that nobody registered."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(f"no task {task_id!r} is registered")
