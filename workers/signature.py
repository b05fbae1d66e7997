"""A function's parameters as JSON schema, so that jobs with wrong ones are refused when they are posted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_origin

import msgspec

Schema = dict[str, Any]


def parameters_schema(function: Callable[..., Any]) -> Schema | None:
    """The schema of the keyword arguments that a function takes; None when it takes any.

    A parameter whose annotation says nothing about JSON may be anything.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, TypeError):
        signature = inspect.signature(function)
    properties: Schema = {}
    components: Schema = {}
    required: list[str] = []
    anything_else = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            anything_else = True
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            properties[parameter.name] = _of(parameter.annotation, components)
            if parameter.default is parameter.empty:
                required.append(parameter.name)
    if anything_else and not properties:
        return None
    schema: Schema = {"type": "object", "properties": properties, "required": required}
    if not anything_else:
        schema["additionalProperties"] = False
    if components:
        schema["$defs"] = components
    return schema


def _of(annotation: Any, components: Schema) -> Schema:
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return {}
    if get_origin(annotation) is None and annotation in (float, complex):
        return {"type": "number"} if annotation is float else {}
    try:
        (schema,), found = msgspec.json.schema_components([annotation], ref_template="#/$defs/{name}")
    except (TypeError, ValueError, AttributeError, RecursionError):
        return {}
    components.update(found)
    return dict(schema)
