"""The SQL examples of a document: statements of its ```sql blocks, with <placeholders> for what differs everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

BLOCK = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)


def statements(document: Path) -> list[str]:
    """One statement each, without the comments after it."""
    found: list[str] = []
    for block in BLOCK.findall(document.read_text()):
        code = "\n".join(line.partition(" --")[0].rstrip() for line in block.splitlines() if not line.startswith("--"))
        found += [statement.strip() for statement in code.split(";") if statement.strip()]
    return found


def fill_in(statement: str, values: Mapping[str, str]) -> str:
    """Replaces <name> by its value; a name without one is an error."""
    return re.sub(r"<(\w+)>", lambda name: values[name[1]], statement)
