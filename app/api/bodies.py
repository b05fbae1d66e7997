"""Taking in the body of a request: its type, its size, its bytes."""

from __future__ import annotations

import math

from flask import request
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from app.api.problems import Problem

JSON = "application/json"
NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")


def read_bytes() -> bytes:
    """The body as it came, whole or not at all: 413 when it is larger than allowed, 400 when it breaks off."""
    try:
        body = request.get_data()
        # One that comes in chunks is read as far as the limit, without a word about what is behind it.
        cut = request.content_length is None and len(body) >= (request.max_content_length or math.inf)
        if cut and request.environ["wsgi.input"].read(1):
            raise RequestEntityTooLarge
    except HTTPException:
        raise
    except Exception as error:  # whatever the server raises for chunks that are none
        raise Problem(400, "the body could not be read to its end") from error
    return body


def read_body(*types: str) -> tuple[str, bytes]:
    """The media type, one of `types`, and the body, which is UTF-8. Larger bodies than allowed end in 413."""
    given = request.mimetype
    if given not in types and not (JSON in types and given.startswith("application/") and given.endswith("+json")):
        said = f"not {given}" if given else "and the request names none"
        raise Problem(415, f"Content-Type must be {' or '.join(types)}, {said}")
    coding = request.environ.get("HTTP_CONTENT_ENCODING", "identity")
    if coding.lower() != "identity":
        raise Problem(415, f"Content-Encoding must be identity, not {coding[:40]}: send the body as it is")
    body = read_bytes()
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8: byte {error.start}") from None
    if not body.strip():
        raise Problem(400, "the body is empty")
    return given, body
