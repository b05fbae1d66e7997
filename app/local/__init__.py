"""pgtick on this machine, for developers: `make run`, `make psql`, `make shell` and `make wipe`."""

from __future__ import annotations

from app.errors import PgtickError


class LocalError(PgtickError):
    """Something that keeps one of these from working; the message says what to do about it."""


def say(text: str) -> None:
    print(f"==> {text}", flush=True)
