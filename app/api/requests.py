"""Bodies of requests: decoded straight into these structures, and when refused, explained completely."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import msgspec
from msgspec import Meta, Raw, Struct

from app.api import json_checks, wording
from app.api.json_checks import Malformed, pointer
from app.api.problems import Fault

Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


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
    max_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
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
    """The jobs of a JSON array. Raises Malformed for what is no JSON, TypeError for JSON that is no array."""
    try:
        return [read_job(item) for item in _items.decode(body)]
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        value = json_checks.read(body.decode())
    except RecursionError:
        raise Malformed("nested too deep") from None
    if not isinstance(value, list):
        raise TypeError("the body must be an array of jobs")
    return [explain(item) for item in value]


def read_lines(body: bytes) -> list[Read]:
    """The jobs of newline-delimited JSON; blank lines are skipped. A line that is no JSON is a fault of that job."""
    read: list[Read] = []
    for line in body.split(b"\n"):
        if line.strip():
            try:
                read.append(read_job(line))
            except Malformed as error:
                read.append(_nothing(f"the line is not JSON: {error}"))
    return read


def read_object(body: bytes) -> dict[str, Any] | list[Fault]:
    """The members of a JSON object, or what is wrong with it as JSON. Raises Malformed for what is no JSON."""
    try:
        value = json_checks.read(body.decode())
    except RecursionError:
        return [Fault(json_checks.deepest_member(body.decode()), f"nested deeper than {json_checks.MAX_DEPTH} levels")]
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
        fault = Fault(json_checks.deepest_member(text), f"nested deeper than {json_checks.MAX_DEPTH} levels")
        return Read(JobPost(task_id=""), frozenset(_FIELDS), [fault])
    return explain(value, text)


def explain(value: Any, text: str | None = None) -> Read:
    """One job from decoded JSON, with everything that is wrong with it; `text` is where it was read from."""
    if not isinstance(value, dict):
        return _nothing("a job must be an object")
    faults = [Fault(pointer("", key), "the key is there twice") for key in getattr(value, "twice", ())]
    given: dict[str, Any] = {}
    broken: set[str] = set()
    for name, member in value.items():
        at = pointer("", name)
        found = json_checks.faults(member, at) or _field_faults(name, member, at)
        if found:
            faults += found
            broken.add(name)
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
        close = get_close_matches(name, _FIELDS, n=1)
        return [Fault(at, f"there is no such field{f'; did you mean {close[0]}?' if close else ''}")]
    if name == "parameters":
        return [] if isinstance(value, dict) else [Fault(at, "must be a JSON object")]
    try:
        msgspec.convert(value, _FIELDS[name])
    except msgspec.ValidationError as error:
        return [wording.fault(at, error, _FIELDS[name])]
    return []


def _member(text: str, name: str) -> Raw:
    return msgspec.json.decode(text, type=dict[str, Raw])[name]


def _nothing(detail: str) -> Read:
    return Read(JobPost(task_id="-"), frozenset(_FIELDS), [Fault("", detail)])
