"""Bodies that are one JSON object: read into a structure, or refused with everything that is wrong with them."""

from __future__ import annotations

from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from app.api import problems, requests
from app.api.bodies import JSON, read_body, read_bytes
from app.api.json_checks import pointer
from app.api.problems import MAX_FAULTS, Fault
from app.api.wording import mismatch, unknown

T = TypeVar("T", bound=Struct)


class Nothing(Struct, forbid_unknown_fields=True):
    """No members: the address says it all."""


def read(kind: type[T], *, empty: bool = False) -> tuple[T, bytes]:
    """The body of this request and its bytes; with `empty`, no body is one without members."""
    if empty and not read_bytes().strip():
        body = b"{}"
    else:
        _, body = read_body(JSON)
    given = requests.read_object(body)
    if isinstance(given, list):
        raise problems.invalid(given)
    if faults := _faults(kind, given):
        raise problems.invalid(faults)
    return msgspec.convert(given, kind), body


def _faults(kind: type[Struct], given: dict[str, Any]) -> list[Fault]:
    faults: list[Fault] = []
    types = get_type_hints(kind, include_extras=True)
    for name, value in given.items():
        if len(faults) >= MAX_FAULTS:
            return faults
        if name not in types:
            faults.append(unknown(name, types))
        elif fault := mismatch(value, types[name], pointer("", name)):
            faults.append(fault)
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return faults + [Fault(pointer("", name), "is required") for name in required if name not in given]
