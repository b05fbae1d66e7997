"""Bodies of requests: decoded straight into these structures, and when refused, explained completely."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Raw, Struct

from app.api import json_checks
from app.api.json_checks import Malformed, pointer
from app.api.problems import MAX_FAULTS, Fault, invalid
from app.api.wording import NO_CONTROLS, NO_NUL, mismatch, unknown

T = TypeVar("T")
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_CONTROLS)]
Text = Annotated[str, Meta(max_length=1000, pattern=NO_NUL)]
Retries = Annotated[int, Meta(ge=0, le=1000)]
Timeout = Annotated[float, Meta(gt=0, le=31_536_000)]
"""Seconds, a year at most."""


class Schedule(Struct, forbid_unknown_fields=True):
    """When a job runs. A cron expression or a date, never both; `type` may say which."""

    type: Literal["NOW", "DATE", "CRON", "now", "date", "cron"] | None = None
    expression: str | None = None
    cron: str | None = None
    date: str | None = None
    run_at: str | None = None
    timezone: str | None = None


class JobPost(Struct, forbid_unknown_fields=True, gc=False):
    """The body of `POST /jobs`, and one item of `POST /jobs/batch`."""

    task_id: Name
    schedule: str | Schedule | None = None
    timezone: str | None = None
    parameters: Raw = Raw(b"{}")
    user_id: Name | None = None
    max_retries: Retries | None = None
    timeout_s: Timeout | None = None
    policies: dict[str, Any] | None = None


class Read(NamedTuple):
    """A job as far as it could be read: fields in `broken` have a fault and hold nothing."""

    post: JobPost
    broken: frozenset[str]
    faults: list[Fault]


_decoder = msgspec.json.Decoder(JobPost)
_items = msgspec.json.Decoder(list[Raw])
_BRACE = ord("{")
_WHOLE: frozenset[str] = frozenset()
_FIELDS = get_type_hints(JobPost, include_extras=True)
_REQUIRED = ("task_id",)


def read_job(raw: bytes | Raw) -> Read:
    """One job from its JSON, which must be UTF-8. Raises Malformed for what is no JSON."""
    try:
        post = _decoder.decode(raw)
        body = bytes(raw)
        if json_checks.looks_harmless(body) and memoryview(post.parameters)[0] == _BRACE:
            return Read(post, _WHOLE, [])
    except (msgspec.MsgspecError, RecursionError):
        body = bytes(raw)
    return _explain_text(body.decode())


def read_batch(body: bytes) -> list[Read]:
    """The jobs of a JSON array. Raises Malformed for what is no JSON, another Problem for what is no array."""
    try:
        return _read_all(_items.decode(body), read_job)
    except (msgspec.MsgspecError, RecursionError):
        pass
    text = body.decode()
    try:
        value = json_checks.read(text)
    except RecursionError:
        place, fault = json_checks.deepest_item(text)
        return [*[_nothing()] * place, _nothing(fault)]
    if not isinstance(value, list):
        raise invalid([Fault("", "the body must be an array of jobs")])
    return _read_all(value, explain)


def lines(body: bytes) -> list[bytes]:
    """Those that are not blank."""
    return [line for line in body.split(b"\n") if line.strip()]


def read_lines(body: bytes) -> list[Read]:
    """The jobs of newline-delimited JSON; blank lines are skipped. A line that is no JSON is a fault of that job."""
    return _read_all(lines(body), _read_line)


def _read_line(line: bytes) -> Read:
    try:
        return read_job(line)
    except Malformed as error:
        return _nothing(Fault("", f"the line is not JSON: {error.reason}"))


def _read_all(items: Iterable[T], read: Callable[[T], Read]) -> list[Read]:
    """Each of them, until there is enough wrong to tell of."""
    found: list[Read] = []
    faulty = 0
    for item in items:
        found.append(read(item) if faulty < MAX_FAULTS else _nothing())
        faulty += len(found[-1].faults)
    return found


def read_object(body: bytes) -> dict[str, Any] | list[Fault]:
    """The members of a JSON object, or what is wrong with it as JSON. Raises Malformed for what is no JSON."""
    try:
        value = json_checks.read(body.decode())
    except RecursionError:
        return [json_checks.deepest_member(body.decode())]
    if not isinstance(value, dict):
        return [Fault("", "the body must be an object")]
    twice = [Fault(pointer("", key), "the key is there twice") for key in getattr(value, "twice", ())]
    broken = [fault for name, member in value.items() for fault in json_checks.faults(member, pointer("", name))]
    return twice + broken or value


def canonical(body: bytes) -> bytes:
    """The same bytes for the same JSON, whatever its spacing and the order of its keys."""
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="deterministic")
    except msgspec.MsgspecError:  # numbers of thousands of digits
        return body


def _explain_text(text: str) -> Read:
    try:
        value = json_checks.read(text)
    except RecursionError:
        return _nothing(json_checks.deepest_member(text))
    return explain(value, text)


def explain(value: Any, text: str | None = None) -> Read:
    """One job from decoded JSON, with everything that is wrong with it; `text` is where it was read from."""
    if not isinstance(value, dict):
        return _nothing(Fault("", "a job must be an object"))
    faults = [Fault(pointer("", key), "the key is there twice") for key in getattr(value, "twice", ())]
    given: dict[str, Any] = {}
    broken: set[str] = set()
    for name, member in value.items():
        at = pointer("", name)
        found = json_checks.faults(member, at) or _field_faults(name, member, at)
        if found:
            faults += found
            broken.add(name)
            if len(faults) >= MAX_FAULTS:
                break
        else:
            given[name] = member
    for name in _REQUIRED:
        if name not in value:
            faults.append(Fault(pointer("", name), "is required"))
            broken.add(name)
    parameters = given.pop("parameters", None)
    post = msgspec.convert({"task_id": "-"} | given, JobPost)
    if parameters is not None:
        # As it was written where possible, so that numbers keep their digits.
        post.parameters = _member(text, "parameters") if text and not faults else Raw(msgspec.json.encode(parameters))
    return Read(post, frozenset(broken & _FIELDS.keys()), faults)


def _field_faults(name: str, value: Any, at: str) -> list[Fault]:
    if name not in _FIELDS:
        return [unknown(name, _FIELDS)]
    if name == "parameters":
        return [] if isinstance(value, dict) else [Fault(at, "must be a JSON object")]
    fault = mismatch(value, _FIELDS[name], at)
    return [fault] if fault else []


def _member(text: str, name: str) -> Raw:
    return msgspec.json.decode(text, type=dict[str, Raw])[name]


def _nothing(*faults: Fault) -> Read:
    """A job of which nothing is known but what is wrong with it."""
    return Read(JobPost(task_id="-"), frozenset(_FIELDS), list(faults))
