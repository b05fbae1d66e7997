"""What the views work with: one of each a process, made without touching the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from flask import current_app

from app.schedule.zones import tzdata_version
from app.settings import Settings
from app.store.notifier import Notifier
from app.store.pool import Pool
from app.store.tasks import Tasks
from app.store.tokens import Tokens
from app.store.users import Users
from app.store.writer import Writer

EXTENSION = "pgtick"


@dataclass(frozen=True)
class Services:
    settings: Settings
    pool: Pool
    tasks: Tasks
    tokens: Tokens
    writer: Writer
    notifier: Notifier
    users: Users

    @classmethod
    def make(cls, settings: Settings) -> Services:
        pool = Pool(settings.database_url)
        tasks = Tasks(pool)
        notifier = Notifier(pool)
        return cls(
            settings, pool, tasks, Tokens(pool), Writer(pool, tasks, notifier, tzdata_version()), notifier, Users()
        )

    def close(self) -> None:
        self.notifier.close()
        self.pool.close()


def current() -> Services:
    """Those of the application that answers this request."""
    return cast(Services, current_app.extensions[EXTENSION])
