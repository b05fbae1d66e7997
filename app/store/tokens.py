"""API tokens: who holds one, and what that allows. Only hashes of them are stored.

A token is `pgtick_<id>_<secret>`: the id finds its row, the secret, 256 random bits, is compared by its SHA-256 in
constant time. It is shown once, when it is made.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import dict_row

from app.errors import PgtickError
from app.store.pool import Pool

USER = "user"
OPERATOR = "operator"
ADMIN = "admin"
ROLES = (USER, OPERATOR, ADMIN)
"""What a user may do: their own jobs; everybody's jobs and the workers; tasks as well."""

LIFE_S = 1.0
"""A revoked token may be taken for so long by a process that has just seen it."""
MOST_KNOWN = 10_000

_TOKEN = re.compile(r"pgtick_(\d{1,18})_([A-Za-z0-9_-]{43})", re.ASCII)

_FIND = """
select t.token_hash, t.user_id, u.role
from pgtick.api_tokens t
join pgtick.users u using (user_id)
where t.token_id = %s and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())
"""

_LIST = """
select t.token_id, t.user_id, u.role, t.name, t.created_at, t.expires_at, t.revoked_at
from pgtick.api_tokens t
join pgtick.users u using (user_id)
where (%(user_id)s::text is null or t.user_id = %(user_id)s)
order by t.token_id
"""


class Identity(NamedTuple):
    """Whom a request comes from."""

    user_id: str
    role: str
    token_id: int

    @property
    def only(self) -> str | None:
        """The one user whose jobs may be seen and touched; None: everybody's."""
        return self.user_id if self.role == USER else None


class UnknownToken(PgtickError):
    """A token id that does not exist, or no longer counts."""

    def __init__(self, token_id: int) -> None:
        super().__init__(f"there is no token {token_id} that could be revoked")


class Tokens:
    """Tells whose a token is. Safe to share between threads."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[float, Identity]] = {}

    def identify(self, token: str) -> Identity | None:
        """Whose the token is; None when it is no token, or revoked, or expired."""
        parts = _TOKEN.fullmatch(token)
        if parts is None:
            return None
        digest = _hash(token)
        known = self._known.get(digest)
        if known is not None and time.monotonic() - known[0] < LIFE_S:
            return known[1]
        row = self._pool.run(lambda c: c.execute(_FIND, [int(parts[1])]).fetchone())
        if row is None or not hmac.compare_digest(bytes(row[0]), digest):
            return None
        identity = Identity(row[1], row[2], int(parts[1]))
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[digest] = time.monotonic(), identity
        return identity


def add(
    connection: psycopg.Connection[Any],
    user_id: str,
    name: str,
    role: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[int, str]:
    """Makes a token; returns its id and the token itself, which is not stored. `role` changes the user's role."""
    with connection.transaction():
        connection.execute(
            "insert into pgtick.users as u (user_id, role) values (%(user_id)s, coalesce(%(role)s, 'user'))"
            " on conflict (user_id) do update set role = coalesce(%(role)s, u.role)",
            {"user_id": user_id, "role": role},
        )
        row = connection.execute("select nextval(pg_get_serial_sequence('pgtick.api_tokens', 'token_id'))").fetchone()
        assert row is not None
        token = f"pgtick_{row[0]}_{secrets.token_urlsafe(32)}"
        connection.execute(
            "insert into pgtick.api_tokens (token_id, user_id, name, token_hash, expires_at) overriding system value"
            " values (%s, %s, %s, %s, %s)",
            [row[0], user_id, name, _hash(token), expires_at],
        )
        connection.execute(
            "select pgtick.audit('add_token', %s, jsonb_build_object('user_id', %s::text, 'role', %s::text))",
            [str(row[0]), user_id, role],
        )
    return int(row[0]), token


def every(connection: psycopg.Connection[Any], user_id: str | None = None) -> list[dict[str, Any]]:
    """All tokens there ever were, of one user or of all, without what would let anybody in."""
    return connection.cursor(row_factory=dict_row).execute(_LIST, {"user_id": user_id}).fetchall()


def revoke(connection: psycopg.Connection[Any], token_id: int) -> None:
    """From now on nobody is let in with it; raises UnknownToken when nobody was."""
    with connection.transaction():
        revoked = connection.execute(
            "update pgtick.api_tokens set revoked_at = now() where token_id = %s and revoked_at is null", [token_id]
        )
        if revoked.rowcount == 0:
            raise UnknownToken(token_id)
        connection.execute("select pgtick.audit('revoke_token', %s)", [str(token_id)])


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
