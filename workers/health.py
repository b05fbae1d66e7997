"""A worker's own pages, on loopback: /healthz, a line of JSON with the state of each loop, and /metrics."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from typing import Any

from app.errors import SettingsError
from app.metrics import CONTENT_TYPE


async def serve(port: int, report: Callable[[], dict[str, Any]], metrics: Callable[[], bytes]) -> asyncio.Server:
    """Answers GET /metrics with the metrics, every other with the report: 200 while `ok` is true in it, else 503.

    Raises SettingsError when the port cannot be had.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                request = await reader.readuntil(b"\r\n\r\n")
                if request.startswith(b"GET /metrics "):
                    writer.write(_response("200 OK", CONTENT_TYPE, metrics()))
                else:
                    facts = report()
                    status = "200 OK" if facts["ok"] else "503 Service Unavailable"
                    writer.write(_response(status, "application/json", json.dumps(facts).encode()))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that does not ask properly gets no answer
        finally:
            writer.close()

    try:
        return await asyncio.start_server(answer, "127.0.0.1", port)
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error}"
        raise SettingsError([f"PGTICK_HEALTH_PORT: {port} {why}"]) from error


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
