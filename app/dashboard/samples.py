"""What the parameters of a task look like: a beginning to fill in, and its members in words, from its JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DEEPEST = 5
_EMPTY = {"object": {}, "array": [], "string": "", "integer": 0, "number": 0, "boolean": False}


def parameters(schema: Any) -> str:
    """JSON of an object with the required members, each with its default, an example, or nothing in it."""
    made = _sample(schema, schema, 0)
    return json.dumps(made if isinstance(made, dict) else {}, indent=2, ensure_ascii=False)


def members(schema: Any) -> list[tuple[str, str, bool]]:
    """Name, type in words and whether it is required, of each member that the schema names; the required ones first."""
    known = _resolved(schema, schema)
    listed = _object(known.get("properties"))
    required = _names(known.get("required"))
    told = [(name, _type(one, schema), name in required) for name, one in listed.items()]
    told += [(name, "", True) for name in required if name not in listed]
    return sorted(told, key=lambda member: not member[2])


def _sample(schema: Any, root: Any, depth: int) -> Any:
    known = _resolved(schema, root)
    for word in ("default", "const"):
        if word in known:
            return known[word]
    for word in ("examples", "enum"):
        if isinstance(known.get(word), list) and known[word]:
            return known[word][0]
    for word in ("anyOf", "oneOf"):
        if isinstance(known.get(word), list) and known[word]:
            return _sample(known[word][0], root, depth + 1) if depth < DEEPEST else None
    listed = _object(known.get("properties"))
    if _kind(known) == "object" or listed:
        required = _names(known.get("required")) if depth < DEEPEST else []
        return {name: _sample(listed.get(name), root, depth + 1) for name in required}
    if "minimum" in known:
        return known["minimum"]
    return _EMPTY.get(_kind(known))


def _type(schema: Any, root: Any) -> str:
    known = _resolved(schema, root)
    if isinstance(known.get("enum"), list):
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in known["enum"][:5])
    return str(known.get("format") or _kind(known))


def _kind(known: Mapping[str, Any]) -> str:
    kind = known.get("type")
    return str((kind[0] if kind else "") if isinstance(kind, list) else kind or "")


def _resolved(schema: Any, root: Any) -> Mapping[str, Any]:
    """The schema that is meant, where it only points into its own document."""
    for _ in range(DEEPEST):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for part in reference[2:].split("/"):
            schema = _object(schema).get(part.replace("~1", "/").replace("~0", "~"))
    return _object(schema)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
