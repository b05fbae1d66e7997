"""How this process was started: its helpers are started alike, whatever tasks have changed since."""

from __future__ import annotations

import os
from typing import Any


class Start:
    """Its environment and working directory, as they were when this was made."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._folder = os.getcwd()

    def alike(self) -> dict[str, Any]:
        """Arguments of `asyncio.create_subprocess_exec`."""
        return {"env": self._environment, "cwd": self._folder}
