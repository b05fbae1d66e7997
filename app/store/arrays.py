"""Columns of values as PostgreSQL array literals: a tenth of the cost of dumping them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any


def plain(values: Sequence[object | None]) -> str:
    """Of values whose text needs no quoting: ids, numbers, words. `{}` when all are null: unnest pads with nulls."""
    if not any(value is not None for value in values):
        return "{}"
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def texts(values: Sequence[str | None]) -> str:
    """Of any texts without NUL."""
    if not any(value is not None for value in values):
        return "{}"
    return "{" + ",".join([quoted(value) for value in values]) + "}"


def times(values: Iterable[datetime | None]) -> str:
    """Of aware times, exact to the microsecond."""
    return plain([None if value is None else f'"{value.isoformat()}"' for value in values])


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Of each column of the rows, under its name: of texts, of times, or of what needs no quoting."""
    values = zip(*rows, strict=True) if rows else [() for _ in names]
    return {name: _literal(column) for name, column in zip(names, values, strict=True)}


def _literal(values: Sequence[Any]) -> str:
    some = next((value for value in values if value is not None), None)
    if isinstance(some, str):
        return texts(values)
    return times(values) if isinstance(some, datetime) else plain(values)


def quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    return '"' + value.replace('"', '\\"') + '"'
