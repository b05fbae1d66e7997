"""Whether parameters are what their task takes: its JSON schema, compiled once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec
from msgspec import Raw

from app.api.json_checks import pointer
from app.api.problems import Fault
from app.store.tasks import Tasks

MOST_FAULTS = 20


class BadSchema(ValueError):
    """A JSON schema that is none, or that refers to what lies elsewhere."""


def faults(tasks: Tasks, task_id: str, parameters: Raw) -> list[Fault]:
    """What is wrong with the parameters of a job. A task without a schema takes anything."""
    schema = tasks.schema(task_id)
    if schema is None:
        return []
    value = msgspec.json.decode(parameters)
    if validator(schema).is_valid(value):
        return []
    # The task may have become another since it was read.
    schema = tasks.schema(task_id, newest=True)
    return [] if schema is None else _faults(schema, value)


@lru_cache(maxsize=10_000)
def validator(schema: str) -> Any:
    """The compiled schema; raises BadSchema. Nothing is fetched, and patterns take time in proportion to the text."""
    try:
        return jsonschema_rs.validator_for(
            msgspec.json.decode(schema), retriever=_nowhere, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise BadSchema(str(error).partition("\n")[0][:300]) from None


def _faults(schema: str, value: Any) -> list[Fault]:
    found: list[Fault] = []
    for error in validator(schema).iter_errors(value):
        at = "/parameters"
        for step in error.instance_path:
            at = pointer(at, step)
        for name in getattr(error.kind, "unexpected", ()):
            found.append(Fault(pointer(at, name), "the task has no such parameter"))
        if missing := getattr(error.kind, "property", None):
            found.append(Fault(pointer(at, missing.strip('"')), "the task needs this parameter"))
        elif not hasattr(error.kind, "unexpected"):
            found.append(Fault(at, error.message[:300]))
        if len(found) >= MOST_FAULTS:
            break
    return found


def _nowhere(uri: str) -> Any:
    raise ValueError(f"{uri} is not part of the schema")
