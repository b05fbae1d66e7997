"""Lets a thread take out what is past retention: reading and compressing it may take longer than the janitor may."""

from __future__ import annotations

import random
import threading
import time

from app.archive.archivist import Archivist
from app.events import emit
from app.settings import Settings


class Retention:
    """At most one thread at a time; it may end with the process at any point, another takes up what it left."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._thread: threading.Thread | None = None
        # Not right at the start: workers that are started together would all look together.
        self._next_at = time.monotonic() + settings.partitions_s * random.uniform(0.2, 1.2)

    async def look(self) -> None:
        if time.monotonic() < self._next_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._next_at = time.monotonic() + self._settings.partitions_s * random.uniform(0.8, 1.2)
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            Archivist(self._settings).run()
        except Exception as error:
            emit("retention_failed", error=error)
