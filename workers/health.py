"""A worker's own /healthz: one line of JSON with the state of each loop, on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any


async def serve(port: int, report: Callable[[], dict[str, Any]]) -> asyncio.Server:
    """Answers every GET with the report: 200 while `ok` is true in it, else 503."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\n")
                facts = report()
                body = json.dumps(facts).encode()
                status = "200 OK" if facts["ok"] else "503 Service Unavailable"
                head = [
                    f"HTTP/1.1 {status}",
                    "Content-Type: application/json",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                ]
                writer.write("\r\n".join([*head, "", ""]).encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that does not ask properly gets no answer
        finally:
            writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port)
