"""Columns of values as PostgreSQL array literals: a tenth of the cost of dumping them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def literals(columns: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """Of each column: of texts, of times, or of what needs no quoting."""
    return {name: _literal(values) for name, values in columns.items()}


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
