"""What the form of a new job begins with, from the schema of a task's parameters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.dashboard import samples

MAIL = {
    "type": "object",
    "properties": {
        "copies": {"type": "integer", "minimum": 1},
        "to": {"type": "string", "format": "email"},
        "kind": {"enum": ["plain", "html"]},
        "address": {"$ref": "#/$defs/Address"},
    },
    "required": ["to", "kind", "copies", "address", "unnamed"],
    "$defs": {
        "Address": {
            "type": "object",
            "properties": {"city": {"type": "string", "default": "Bonn"}, "tags": {"type": ["array", "null"]}},
            "required": ["city", "tags"],
        }
    },
}


def test_required_members_are_there_with_what_is_known_of_them() -> None:
    made = {"to": "", "kind": "plain", "copies": 1, "address": {"city": "Bonn", "tags": []}, "unnamed": None}
    assert json.loads(samples.parameters(MAIL)) == made


def test_members_are_told_in_words_the_required_ones_first() -> None:
    schema = {"properties": {"late": {"type": "boolean"}, "to": {"type": "string"}}, "required": ["to"]}
    assert samples.members(schema) == [("to", "string", True), ("late", "boolean", False)]
    assert ("kind", '"plain" or "html"', True) in samples.members(MAIL)
    assert ("to", "email", True) in samples.members(MAIL)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {},
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"type": "string"},
        {"properties": [], "required": "x"},
        {"anyOf": []},
        {"type": [], "required": [1]},
    ],
)
def test_a_schema_that_says_nothing_of_members_begins_empty(schema: Any) -> None:
    assert samples.parameters(schema) == "{}"
    assert samples.members(schema) == []


def test_a_schema_that_holds_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert samples.parameters(node).count("next") <= samples.DEEPEST + 1
