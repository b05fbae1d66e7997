"""Taking in the body of a request: its type, its size, its bytes."""

from __future__ import annotations

from flask import request

from app.api.problems import Problem

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")


def read_body(*types: str) -> tuple[str, bytes]:
    """The media type, one of `types`, and the body, which is UTF-8. Larger bodies than allowed end in 413."""
    given = request.mimetype
    if given not in types and not (JSON in types and given.startswith("application/") and given.endswith("+json")):
        said = f"not {given}" if given else "and the request names none"
        raise Problem(415, f"Content-Type must be {' or '.join(types)}, {said}")
    body = request.get_data(cache=False)
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8: byte {error.start}") from None
    if not body.strip():
        raise Problem(400, "the body is empty")
    return given, body
