"""Where a worker runs: its helpers are started in the same surroundings, whatever tasks have changed since."""

from __future__ import annotations

import os
from typing import Any


def surroundings() -> dict[str, Any]:
    """Environment and working directory as they are now, as arguments of `asyncio.create_subprocess_exec`."""
    return {"env": dict(os.environ), "cwd": os.getcwd()}
