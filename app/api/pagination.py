"""Pages by keyset: a cursor is the place of the last item, so pages neither repeat nor miss when rows move."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import urlencode

from flask import request

from app.api.problems import bad_parameter
from app.domain.execution import ExecutionId
from app.store.search import Position

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


def read_limit(text: str | None) -> int:
    """The size of a page; more than there may be is brought down."""
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise bad_parameter("limit", f"must be a whole number from 1 to {MAX_LIMIT}")
    return min(int(text), MAX_LIMIT)


def read_cursor(text: str | None) -> Position | None:
    if text is None:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        place = ExecutionId.parse(base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii"))
    except (binascii.Error, ValueError):
        place = None
    if place is None or write_cursor(Position(*place)) != text:
        raise bad_parameter("cursor", "is not a cursor of this API; take it from next_cursor or the Link header")
    return Position(*place)


def write_cursor(position: Position) -> str:
    text = str(ExecutionId(position.at, position.job_id))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def link(cursor: str | None) -> dict[str, str]:
    """The Link header of a page that has a next one (RFC 8288); its target is relative to the request."""
    if cursor is None:
        return {}
    query = [(name, value) for name, value in request.args.items(multi=True) if name != "cursor"]
    return {"Link": f'<{request.path}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'}
