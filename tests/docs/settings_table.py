"""README's table of settings, made from app/settings.py: `python -m tests.docs.settings_table` writes it."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from app.settings import Settings
from tests.support.databases import CHECKOUT

README = CHECKOUT / "README.md"
PLACE = re.compile(r"(<!-- settings: [^\n]* -->\n)(.*?)(<!-- /settings -->)", re.DOTALL)


def table() -> str:
    rows = [f"| `{s.metadata['variable']}` | {_shown(s.default)} | {s.metadata['effect']} |" for s in fields(Settings)]
    return "\n".join(["| variable | default | effect |", "|---|---|---|", *rows]) + "\n"


def written() -> str:
    """The table as README has it."""
    found = PLACE.search(README.read_text())
    assert found, "README.md has no place for the settings"
    return found[2]


def _shown(default: Any) -> str:
    """As it would be written in the environment."""
    if isinstance(default, str | tuple):
        return f"`{default}`" if default else ""
    return f"`{str(default).lower().removesuffix('.0')}`"


if __name__ == "__main__":
    README.write_text(PLACE.sub(lambda place: place[1] + table() + place[3], README.read_text()))
