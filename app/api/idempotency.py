"""The Idempotency-Key header: a creating request that may be sent again without making anything twice."""

from __future__ import annotations

import hashlib

from flask import request

from app.api.problems import Problem
from app.api.requests import canonical
from app.store.idempotency import KEY, KEY_RULE, Key

HEADER = "Idempotency-Key"


def read_key(user_id: str, body: bytes) -> Key | None:
    """The key of this request, if it has one, with what tells its body from others. Bodies are compared as JSON."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not KEY.fullmatch(key):
        raise Problem(400, f"{HEADER} {KEY_RULE}")
    place = request.path.rstrip("/").lower()  # other spellings lead to the same
    return Key(user_id, key, hashlib.sha256(place.encode() + b"\n" + canonical(body)).digest())


def made_at(location: str, replayed: bool) -> dict[str, str]:
    """The headers of an answer to a creating request: where what it made is, and whether an earlier one made it."""
    return {"Location": location, "Idempotent-Replayed": "true"} if replayed else {"Location": location}
