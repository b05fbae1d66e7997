"""Loaded into a worker beside its tasks: its leases are never kept, as when the server has no connection left."""

from __future__ import annotations

import asyncio

from workers.leases import Leases


async def run(self: Leases) -> None:
    print("no lease is kept", flush=True)
    await asyncio.sleep(3600)


Leases.run = run  # type: ignore[method-assign]
