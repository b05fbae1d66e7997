"""Watches for what will hurt soon, and says so in a row of pgtick.findings: one sentence with what to act on."""

from __future__ import annotations

import time
from datetime import timedelta

from app.events import emit
from app.settings import Settings
from app.store import queries
from workers.loop import Link


class Guards:
    """Each finding is logged once when it is new and once when it is gone, by whichever worker notices first."""

    def __init__(self, settings: Settings, link: Link) -> None:
        self._settings = settings
        self._link = link
        self._look_at = 0.0

    async def look(self) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + self._settings.guards_s
        connection = await self._link.connection()
        cursor = await connection.execute(
            queries.findings, {"snapshot_age": timedelta(seconds=self._settings.old_snapshot_s)}
        )
        for change, kind, subject, sentence in await cursor.fetchall():
            emit("finding" if change == "new" else "finding_gone", kind=kind, subject=subject, sentence=sentence)
