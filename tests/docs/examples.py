"""The examples of a document: SQL, with <placeholders> for what differs everywhere, Python, and what curl sends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
POSTED = re.compile(
    r"curl -s (?:-X (\w+) )?localhost:8080(/\S+) -H 'Content-Type: application/json' -d '(.*?)'", re.DOTALL
)


def blocks(document: Path, language: str) -> list[str]:
    return [code for name, code in BLOCK.findall(document.read_text()) if name == language]


def posts(document: Path) -> list[tuple[str, str, str]]:
    """What its curl commands send: method, path, body."""
    shell = "".join(blocks(document, "sh"))
    return [(method or "POST", path, body) for method, path, body in POSTED.findall(shell)]


def statements(document: Path) -> list[str]:
    """One statement each, without the comments after it."""
    found: list[str] = []
    for block in blocks(document, "sql"):
        code = "\n".join(line.partition(" --")[0].rstrip() for line in block.splitlines() if not line.startswith("--"))
        found += [statement.strip() for statement in code.split(";") if statement.strip()]
    return found


def fill_in(statement: str, values: Mapping[str, str]) -> str:
    """Replaces <name> by its value; a name without one is an error."""
    return re.sub(r"<(\w+)>", lambda name: values[name[1]], statement)
