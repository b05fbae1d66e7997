"""What msgspec finds wrong with a value, in words for people who write JSON and not Python."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from app.api.json_checks import pointer
from app.api.problems import Fault

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_SIGNS = {">=": "at least", "<=": "at most", ">": "greater than", "<": "less than"}
_COUNTED = {"str": "characters", "array": "items", "object": "members"}
# `$` would match before a last line break, too, and `\Z` is not known where /openapi.json is read.
NO_CONTROLS = r"^[^\x00-\x1f\x7f]*(?![\s\S])"
NO_NUL = r"^[^\x00]*(?![\s\S])"
STATUS = r"^[1-5](xx|[0-9][0-9])(?![\s\S])"
_RULES = {
    NO_CONTROLS: "must be without control characters, such as a line break",
    NO_NUL: "must be without NUL characters",
    STATUS: "must be a status such as 404, or a class of them such as 5xx",
}
_KIND = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_LENGTH = re.compile(r"Expected `([^`]+)` of length (>=|<=) (\d+)")
_BOUND = re.compile(r"Expected `[^`]+` (>=|<=|>|<) (\S+)")
_NAME = re.compile(r"Object (contains unknown|missing required) field `([^`]*)`")
_PATH = re.compile(r" - at `(?:key in )?\$(.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_LONGEST_NAME = 100


def mismatch(value: Any, wanted: Any, at: str) -> Fault | None:
    """How the value at the pointer `at` is not of a type, if it is not; the fault points to what is wrong in it."""
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        return _fault(at, str(error), wanted)
    return None


def unknown(name: str, known: Iterable[str]) -> Fault:
    """A member that nobody knows, and which one may be meant."""
    close = get_close_matches(name[:_LONGEST_NAME], known, n=1)
    return Fault(pointer("", name), f"there is no such field{f'; did you mean {close[0]}?' if close else ''}")


def _fault(at: str, message: str, wanted: Any) -> Fault:
    steps: list[str] = []
    if path := _PATH.search(message):
        message = message[: path.start()]
        steps = [step[1] or step[2] for step in _STEP.finditer(path[1]) if step[1] != "..."]
    for step in steps:
        at = pointer(at, step)
    return Fault(at, _in_words(message, wanted, steps))


def _in_words(message: str, wanted: Any, path: list[str]) -> str:
    """The rule that was broken. `wanted` is the type of the whole value, `path` leads to what is wrong in it."""
    if found := _KIND.match(message):
        options = [_KINDS.get(name.strip(), name.strip()) for name in found[1].split("|")]
        return f"must be {' or '.join(options)}, not {_KINDS.get(found[2], found[2])}"
    if found := _LENGTH.match(message):
        kinds = [name.strip() for name in found[1].split("|")]
        counted = next((_COUNTED[kind] for kind in kinds if kind in _COUNTED), "items")
        return f"must have {_SIGNS[found[2]]} {found[3]} {counted if found[3] != '1' else counted[:-1]}"
    if found := _BOUND.match(message):
        return f"must be {_SIGNS[found[1]]} {found[2].removesuffix('.0')}"
    if "matching regex" in message:
        return next((rule for pattern, rule in _RULES.items() if repr(pattern) in message), "is not well-formed")
    if found := _NAME.match(message):
        return f"there is no field {found[2]}" if found[1].startswith("contains") else f"{found[2]} is required"
    if message.startswith("Invalid enum value") and (options := _choices(wanted, path)):
        return f"must be {', '.join(options[:-1])} or {options[-1]}"
    return message.replace("`", "")


def _choices(wanted: Any, path: list[str]) -> list[str]:
    """What a place may hold where only certain values are allowed; empty where others are, or it is not found."""
    for kind in _alternatives(wanted):
        if not path and get_origin(kind) is Literal:
            return [str(value) for value in get_args(kind)]
        if path and isinstance(kind, type) and issubclass(kind, Struct):
            return _choices(get_type_hints(kind, include_extras=True).get(path[0]), path[1:])
    return []


def _alternatives(wanted: Any) -> list[Any]:
    """The types of a union, or the one there is, without annotations."""
    if get_origin(wanted) is Annotated:
        return _alternatives(get_args(wanted)[0])
    if get_origin(wanted) in (Union, UnionType):
        return [kind for option in get_args(wanted) for kind in _alternatives(option)]
    return [wanted]
