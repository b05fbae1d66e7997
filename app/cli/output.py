"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import click

from app.clock import in_utc

Command = TypeVar("Command", bound=Callable[..., Any])
WIDEST = 60


def json_option(command: Command) -> Command:
    """Adds --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    """Rows as a table with these columns, or whole as a JSON array."""
    if as_json:
        click.echo(dumps(list(rows)))
        return
    for line in table(rows, columns):
        click.echo(line)


def show_one(row: Mapping[str, Any], as_json: bool) -> None:
    """One thing, a line for each of its members that is set."""
    if as_json:
        click.echo(dumps(row))
        return
    width = max(map(len, row))
    for name, value in row.items():
        if value is None:
            continue
        click.echo(f"{name:<{width}}  {value if isinstance(value, str) else text(value)}")


def refuse(faults: Iterable[tuple[str, str]]) -> NoReturn:
    """Says all that is wrong, each with a pointer to it, and ends with status 1."""
    click.echo("\n".join(f"{pointer}: {rule}" for pointer, rule in faults), err=True)
    sys.exit(1)


def missing(kind: str, name: object) -> NoReturn:
    """Says that there is no such thing, and ends with status 1."""
    click.echo(f"there is no {kind} {name}", err=True)
    sys.exit(1)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """The lines of a table, its columns as wide as they need to be."""
    cells = [[name.upper().replace("_", " ") for name in columns]]
    cells += [[_short(text(row.get(name))) for name in columns] for row in rows]
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def text(value: Any) -> str:
    """A value as people read it; times in UTC."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=_plain)


def _plain(value: Any) -> Any:
    return in_utc(value) if isinstance(value, datetime) else str(value)


def _short(value: str) -> str:
    line = value.replace("\n", " ")
    return line if len(line) <= WIDEST else line[: WIDEST - 1] + "…"
