"""Columns of values as lines of COPY: a fifth of the cost of dumping them row by row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def lines(*columns: Sequence[object | None]) -> str:
    """One line a row. Values of a column are of one kind or None; texts are without NUL."""
    return "".join(["\t".join(row) + "\n" for row in zip(*map(_fields, columns), strict=True)])


def _fields(values: Sequence[object | None]) -> list[str]:
    some = next((value for value in values if value is not None), None)
    if some is None:
        return ["\\N"] * len(values)
    if isinstance(some, datetime):
        return ["\\N" if value is None else value.isoformat() for value in values]  # type: ignore[attr-defined]
    texts = ["" if value is None else str(value) for value in values]
    if _SPECIAL.search("".join(texts)):
        texts = [text.translate(_ESCAPES) for text in texts]
    return ["\\N" if value is None else text for value, text in zip(values, texts, strict=True)]
