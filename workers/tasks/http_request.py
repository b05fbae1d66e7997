"""HTTP tasks: sends an execution's parameters to an endpoint, signed, and makes an outcome of the answer.

Only the addresses that are allowed are connected to. That is decided where a socket is made for one, after names were
resolved and for every redirect, so no name can lead anywhere else meanwhile.
"""

from __future__ import annotations

import contextlib
import email.utils
import errno
import json
import math
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from app.clock import in_utc
from app.domain.addresses import Network, is_allowed
from app.domain.endpoint import Endpoint, signature, url_fault
from app.version import installed_version
from workers.context import Context, current
from workers.signals import Rejected, Retry

RESPONSE_LIMIT = 16_384
"""Bytes of an answer's body that are kept."""
ERROR_BODY_LIMIT = 1_000
MOST_REDIRECTS = 3
REPEATED = (301, 302, 307, 308)
"""Redirects after which the same request is sent to the other address."""
CONNECT_S = 10.0
WITHOUT_BODY = ("GET", "DELETE")


class Refused(OSError):
    """An address that tasks must not connect to."""


class Client:
    """One pool of connections for all HTTP tasks of a worker; to be used in its event loop."""

    def __init__(self, allowed: Sequence[Network], *, connections: int = 1000) -> None:
        self._allowed = allowed
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def function(self, endpoint: Endpoint) -> Callable[..., Awaitable[dict[str, Any]]]:
        """The function of the task that this endpoint stands for."""

        async def call(**parameters: Any) -> dict[str, Any]:
            return await self.send(endpoint, current(), parameters)

        return call

    async def send(self, endpoint: Endpoint, context: Context, parameters: dict[str, Any]) -> dict[str, Any]:
        """What the endpoint answered, cut short. Raises Retry or Rejected when it is not what was expected."""
        body, query = b"", None
        if endpoint.method in WITHOUT_BODY:
            query = {name: _as_text(value) for name, value in parameters.items()}
        else:
            body = json.dumps(parameters, ensure_ascii=False, separators=(",", ":")).encode()
        url, ours = endpoint.url, _our_headers(endpoint, context, body)
        theirs = endpoint.headers
        for _ in range(1 + MOST_REDIRECTS):
            answer, location = await self._exchange(endpoint, url, theirs | ours, body, query)
            if location is None:
                return _judged(endpoint, answer)
            following, query = urljoin(url, location), None
            if url_fault(following):
                raise Rejected(f"redirected to {following[:200]!r}, which {url_fault(following)}")
            if urlsplit(following)[:2] != urlsplit(url)[:2]:
                theirs = {}  # they may hold what only the first host is to know
            url = following
        raise Rejected(f"redirected more than {MOST_REDIRECTS} times")

    async def _exchange(
        self, endpoint: Endpoint, url: str, headers: dict[str, str], body: bytes, query: dict[str, str] | None
    ) -> tuple[dict[str, Any], str | None]:
        session = self._session or self._open()
        try:
            async with session.request(
                endpoint.method, url, params=query, data=body or None, headers=headers, allow_redirects=False
            ) as response:
                if response.status in REPEATED and "Location" in response.headers:
                    response.close()
                    return {}, response.headers["Location"]
                return await _kept(response), None
        except (aiohttp.InvalidURL, UnicodeError) as error:
            raise Rejected(f"is no URL that can be called: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            refused = _refusal(error)
            if refused is not None:
                raise Rejected(refused) from None
            raise Retry(f"{type(error).__name__}: {error}") from None

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._connections, ttl_dns_cache=10, socket_factory=self._socket, enable_cleanup_closed=True
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            # A task has a time limit of its own.
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )
        return self._session

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket to connect to exactly this address; raises Refused where that is not allowed."""
        family, kind, protocol, _, place = address
        if not is_allowed(str(place[0]), self._allowed):
            raise Refused(errno.EACCES, f"{REFUSAL} {place[0]}")
        return socket.socket(family=family, type=kind, proto=protocol)


REFUSAL = "not a public address, and not in PGTICK_HTTP_ALLOW:"


def _refusal(error: BaseException) -> str | None:
    """What was refused, if all addresses were: the client makes one error of theirs, with their number if it is one."""
    if not isinstance(error, OSError) or error.errno != errno.EACCES:
        return None
    text = str(error)
    return text[text.index(REFUSAL) :].rstrip("]") if REFUSAL in text else None


def _our_headers(endpoint: Endpoint, context: Context, body: bytes) -> dict[str, str]:
    scheduled_at = datetime.fromtimestamp(context.scheduled_at, UTC)
    now = int(time.time())
    return {
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"pgtick/{installed_version()}",
        "Idempotency-Key": context.execution_id,
        "Pgtick-Execution-Id": context.execution_id,
        "Pgtick-Job-Id": context.job_id,
        "Pgtick-Task-Id": context.task_id,
        "Pgtick-Attempt": str(context.attempt),
        "Pgtick-Scheduled-At": in_utc(scheduled_at, "microseconds"),
        "webhook-id": context.execution_id,
        "webhook-timestamp": str(now),
        "webhook-signature": signature(endpoint.secret, context.execution_id, now, body),
        **context.trace,
    }


async def _kept(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The answer as it is kept: JSON as JSON where it is whole, else text."""
    data = b""
    while len(data) <= RESPONSE_LIMIT and (chunk := await response.content.read(RESPONSE_LIMIT + 1 - len(data))):
        data += chunk
    cut = len(data) > RESPONSE_LIMIT
    if cut:
        response.close()  # the rest is not worth waiting for
    body: Any = _decoded(data[:RESPONSE_LIMIT], response.charset)
    if not cut and "json" in response.content_type:
        with contextlib.suppress(ValueError, RecursionError):
            body = json.loads(body, parse_constant=_no_constant, parse_float=_finite)
    return {
        "status": response.status,
        "reason": response.reason or "",
        "content_type": response.content_type,
        "retry_after": response.headers.get("Retry-After"),
        "body": body,
        "truncated": cut,
    }


def _judged(endpoint: Endpoint, answer: dict[str, Any]) -> dict[str, Any]:
    status = answer["status"]
    retry_after = answer.pop("retry_after")
    reason = answer.pop("reason")
    if endpoint.succeeds(status):
        return answer
    said = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"], ensure_ascii=False)
    text = f"HTTP {status} {reason}".strip() + (f": {said[:ERROR_BODY_LIMIT]}" if said.strip() else "")
    if endpoint.is_retried(status):
        raise Retry(text, after=seconds_of(retry_after, time.time()))
    raise Rejected(text)


def seconds_of(retry_after: str | None, now: float) -> float | None:
    """The pause that a Retry-After asks for, in seconds or until a date; None when it says nothing usable."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:10])
    try:
        at = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, at.timestamp() - now)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _decoded(data: bytes, charset: str | None) -> str:
    """The text of a body; as UTF-8 where the answer names an encoding that is none."""
    try:
        return data.decode(charset or "utf-8", errors="replace")
    except (LookupError, ValueError):
        return data.decode(errors="replace")


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number
