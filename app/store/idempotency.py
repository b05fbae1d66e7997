"""Idempotency keys: the first request with a key makes its jobs, later ones are told what it made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from app.errors import PgtickError
from app.store.pool import Connection, Unavailable

# In one order everywhere, so that two groups with the same keys wait for each other instead of dead-locking.
_TAKE = """
insert into pgtick.idempotency_keys (user_id, key, body_hash, response)
select * from unnest(%s::text[], %s::text[], %s::bytea[], %s::jsonb[]) as k (user_id, key, body_hash, response)
order by user_id, key
on conflict do nothing
returning user_id, key
"""

_READ = """
select k.user_id, k.key, k.body_hash, k.response, k.created_at
from unnest(%s::text[], %s::text[]) as asked (user_id, key)
join pgtick.idempotency_keys k using (user_id, key)
"""

_KEEP = "update pgtick.idempotency_keys set response = %s where user_id = %s and key = %s"

Name = tuple[str, str]
KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
KEY_RULE = "must be 1 to 255 visible ASCII characters without blanks"


class KeyConflict(PgtickError):
    """An idempotency key that came with another body before."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r} came with another request before")


class Key(NamedTuple):
    """A key as a request carries it; keys of different users are different."""

    user_id: str
    key: str
    body_hash: bytes

    @property
    def name(self) -> Name:
        return self.user_id, self.key


class Kept(NamedTuple):
    """What the first request with a key made, and when."""

    body_hash: bytes
    job_ids: list[str]
    created_at: datetime


def take(connection: Connection, keys: Sequence[tuple[Key, Sequence[str]]]) -> set[Name]:
    """Claims keys for the job ids they come with; returns those that were free. Waits for who is claiming one now."""
    rows = connection.execute(
        _TAKE,
        [
            [key.user_id for key, _ in keys],
            [key.key for key, _ in keys],
            [key.body_hash for key, _ in keys],
            [json.dumps({"job_ids": list(job_ids)}) for _, job_ids in keys],
        ],
    )
    return {(user_id, key) for user_id, key in rows}


def once(connection: Connection, key: Key | None, make: Callable[[], str]) -> tuple[str, bool]:
    """The id of what `make` makes, and whether an earlier request with the key made it. Raises KeyConflict."""
    with connection.transaction():
        if key is None or take(connection, [(key, [])]):
            made = make()
            if key is not None:
                connection.execute(_KEEP, [json.dumps({"job_ids": [made]}), key.user_id, key.key])
            return made, False
    kept = read(connection, [key.name]).get(key.name)
    if kept is None:
        raise Unavailable("the key was removed meanwhile")
    if kept.body_hash != key.body_hash:
        raise KeyConflict(key.key)
    return kept.job_ids[0], True


def read(connection: Connection, names: Sequence[Name]) -> dict[Name, Kept]:
    """What is kept under these keys."""
    rows = connection.execute(_READ, [[user_id for user_id, _ in names], [key for _, key in names]])
    return {
        (user_id, key): Kept(bytes(body_hash), response["job_ids"], created_at)
        for user_id, key, body_hash, response, created_at in rows
    }
