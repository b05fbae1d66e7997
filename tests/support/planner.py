"""A process that only plans: `python -m tests.support.planner` on DATABASE_URL, until it is killed."""

from __future__ import annotations

import asyncio
import time

from app.clock import clock
from app.settings import Settings
from app.store.connections import HOT_SETTINGS
from workers.loop import Link, Loop
from workers.planner import Planner


async def main() -> None:
    settings = Settings.from_environment()
    link = Link("planner", settings.database_url, HOT_SETTINGS)
    connection = await link.connection()
    sent = time.monotonic()
    row = await (await connection.execute("select extract(epoch from clock_timestamp())::float8")).fetchone()
    assert row is not None
    clock.observe(row[0], sent, time.monotonic())
    await Loop("planner", Planner(settings, clock, link, lambda _: None).tick, link).run()


if __name__ == "__main__":
    asyncio.run(main())
