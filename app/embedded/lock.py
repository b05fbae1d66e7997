"""Locks between processes of this machine."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Lock:
    """A lock file, held until released or until this process ends, however it ends."""

    path: Path
    _descriptor: int = field(repr=False)

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """The lock, or None if another process holds it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def release(self) -> None:
        os.close(self._descriptor)
