"""Watches for what will hurt soon, and says so in a row of pgtick.findings: one sentence with what to act on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

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
        say(await (await connection.execute(queries.findings, wanted(self._settings))).fetchall())


def wanted(settings: Settings) -> dict[str, Any]:
    """The values of `findings.sql`."""
    return {"snapshot_age": timedelta(seconds=settings.old_snapshot_s)}


def say(changes: Iterable[Sequence[Any]]) -> None:
    """Logs what `findings.sql` returned."""
    for change, kind, subject, sentence in changes:
        emit("finding" if change == "new" else "finding_gone", kind=kind, subject=subject, sentence=sentence)
