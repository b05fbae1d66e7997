"""The task that benchmarks run: it does nothing, so that what is measured is pgtick."""

from __future__ import annotations

from typing import Any

from workers.registry import task


@task("bench")
async def bench(**parameters: Any) -> None:
    """Does nothing, at once."""
