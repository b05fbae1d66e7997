"""What is wrong with JSON that was refused, or that looks as if it should be.

The fast path of requests decodes with msgspec, which stops at the first error. Only when it refuses, or when a cheap
look finds something suspicious, is the text read again here, leniently, to name everything at once.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from app.api.problems import MAX_FAULTS, Fault, Problem

MAX_DEPTH = 64
MAX_DIGITS = 400

_TINY = re.compile(rb"\d[eE]-\d{3}")
_BLANK_BEFORE_COLON = re.compile(rb'"\s+:')
_DIGITS_TO_0 = bytes.maketrans(b"123456789", b"0" * 9)
_SURROGATE = re.compile("[\ud800-\udfff]")
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]', re.DOTALL)
_EXPONENT = re.compile(r"[eE][-+]?0*(\d+)")
_KEY_ENDS = b'":'


class Malformed(Problem):
    """A text that is no JSON at all, also leniently."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(400, f"the body is not JSON: {reason}")


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys came twice."""

    twice: tuple[str, ...]


class _Unreadable:
    """A number outside of what can be stored."""

    def __init__(self, text: str) -> None:
        self.text = text if len(text) <= 40 else text[:40] + "…"


def looks_harmless(raw: bytes) -> bool:
    """Whether a job that msgspec accepts surely breaks no rule about JSON: cheap, and wrong only by being careful.

    Numbers that are too large msgspec refuses itself. Those with more decimals than PostgreSQL keeps are looked for
    where they can be. Duplicate keys are found by counting: as many colons behind quotes as keys in the decoded object,
    provided that they are right behind them.
    """
    if b"\\u0000" in raw or raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
        return False
    if ((b"e-" in raw or b"E-" in raw) and _TINY.search(raw)) or _BLANK_BEFORE_COLON.search(raw):
        return False
    if len(raw) > MAX_DIGITS and b"0" * MAX_DIGITS in raw.translate(_DIGITS_TO_0):
        return False
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return type(value) is dict and raw.count(_KEY_ENDS) == _count_keys(value)


def read(text: str) -> Any:
    """The value of a JSON text; NaN, Infinity and lone surrogates are let through, to be found by `faults`.

    Raises Malformed, and RecursionError for something nested a thousand deep.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_float=_float, parse_int=_int)
    except ValueError as error:
        raise Malformed(str(error)) from None


def deepest_member(text: str) -> Fault:
    """Blames the member of an object in which a text goes too deep, without reading it as JSON."""
    return _too_deep(_deepest(text, 1)[1])


def deepest_item(text: str) -> tuple[int, Fault]:
    """The same of an array of objects: the place of the object, too."""
    place, key = _deepest(text, 2)
    return place, _too_deep(key)


def _deepest(text: str, level: int) -> tuple[int, str]:
    """Where in the first array, and in which member at a level, a text goes too deep."""
    depth, place, key = 0, 0, ""
    for found in _STRUCTURE.finditer(text):
        token = found[0]
        if token[0] == '"':
            key = token[1:-1] if depth == level else key
        elif token == ",":
            place += depth == 1
        else:
            depth += 1 if token in "[{" else -1
            if depth > MAX_DEPTH:
                break
    return place, key


def _too_deep(key: str) -> Fault:
    return Fault(pointer("", key) if key else "", f"nested deeper than {MAX_DEPTH} levels")


def faults(value: Any, start: str = "", depth: int = 0) -> list[Fault]:
    """Everything in a value that may not be stored, in order; `depth` is how deep it is already."""
    return [fault for fault, _ in zip(_faults(value, start, depth), range(MAX_FAULTS), strict=False)]


def pointer(parent: str, key: str | int) -> str:
    return f"{parent}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _faults(value: Any, at: str, depth: int) -> Iterator[Fault]:
    if isinstance(value, str):
        yield from _text_faults(value, at)
    elif isinstance(value, float):
        if not math.isfinite(value):
            name = "NaN" if math.isnan(value) else "Infinity or too large a number"
            yield Fault(at, f"{name} is not allowed in JSON")
    elif isinstance(value, _Unreadable):
        yield Fault(at, f"the number {value.text} is outside of what can be stored")
    elif isinstance(value, dict | list) and depth >= MAX_DEPTH:
        yield Fault(at, f"nested deeper than {MAX_DEPTH} levels")
    elif isinstance(value, dict):
        for key in getattr(value, "twice", ()):
            yield Fault(_printable(pointer(at, key)), "the key is there twice")
        for key, inner in value.items():
            below = _printable(pointer(at, key))
            yield from _text_faults(key, below)
            yield from _faults(inner, below, depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _faults(inner, pointer(at, place), depth + 1)


def _count_keys(value: dict[str, Any] | list[Any]) -> int:
    keys, inside = (len(value), value.values()) if type(value) is dict else (0, value)
    for inner in inside:
        if type(inner) is dict or type(inner) is list:
            keys += _count_keys(inner)
    return keys


def _text_faults(text: str, at: str) -> Iterator[Fault]:
    if "\0" in text:
        yield Fault(at, "a NUL character (\\u0000) cannot be stored")
    if _SURROGATE.search(text):
        yield Fault(at, "half of a surrogate pair is not a character")


def _printable(text: str) -> str:
    """Fit for an answer in UTF-8, also if a key is not."""
    return _SURROGATE.sub("\ufffd", text)


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    made.twice = ()
    if len(made) < len(pairs):
        times = Counter(key for key, _ in pairs)
        made.twice = tuple(key for key in made if times[key] > 1)
    return made


def _float(text: str) -> float | _Unreadable:
    exponent = _EXPONENT.search(text)
    if len(text) > MAX_DIGITS or (exponent and (len(exponent[1]) > 4 or int(exponent[1]) > MAX_DIGITS)):
        return _Unreadable(text)
    number = float(text)
    return number if math.isfinite(number) else _Unreadable(text)


def _int(text: str) -> int | _Unreadable:
    return _Unreadable(text) if len(text) > MAX_DIGITS else int(text)
