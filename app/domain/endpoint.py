"""The endpoint of an HTTP task: what is sent where, and what its answers mean."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

SECRET_PREFIX = "whsec_"
EXPECTED = ("2xx",)
RETRIED = ("408", "425", "429", "5xx")
OURS = (
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "idempotency-key",
    "user-agent",
    "traceparent",
    "tracestate",
)
"""Headers that are not the user's to set."""


class Endpoint(Struct, frozen=True):
    """Where and how an HTTP task is sent. Statuses are numbers or classes: `429`, `5xx`."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    expected: tuple[str, ...] = EXPECTED
    retried: tuple[str, ...] = RETRIED
    secret: str = ""

    def succeeds(self, status: int) -> bool:
        return matches(status, self.expected)

    def is_retried(self, status: int) -> bool:
        return matches(status, self.retried)


def matches(status: int, patterns: tuple[str, ...]) -> bool:
    return str(status) in patterns or f"{status // 100}xx" in patterns


def new_secret() -> str:
    """A key to sign with, as Standard Webhooks writes it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def secret_bytes(secret: str) -> bytes | None:
    """The key itself, 24 to 64 bytes; None when the text is no such key."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if 24 <= len(key) <= 64 else None


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of Standard Webhooks: version 1, HMAC-SHA256."""
    content = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.digest(secret_bytes(secret) or b"", content, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode()


def url_fault(url: str) -> str | None:
    """Why the address cannot be called; None when it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not parts.hostname:
        return "has no host"
    if parts.username or parts.password:
        return "must not contain a user or password; use a header"
    if port == 0 or any(character <= " " or character == "\x7f" for character in url):
        return "is no URL"
    try:
        parts.hostname.encode("idna")
    except UnicodeError as error:
        return f"has a host that is none: {error}"
    return None


def host_of(url: str) -> str:
    """The host of an address that has no fault."""
    return (urlsplit(url).hostname or "").rstrip(".")


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_ours(name: str) -> bool:
    """Whether a header is not the user's to set."""
    return name.lower() in OURS or name.lower().startswith(("pgtick-", "webhook-"))
