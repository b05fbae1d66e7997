"""An HTTP server for tests that records what it is sent and answers as it was told."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    """By their names in lower case."""
    body: bytes


class Answer(NamedTuple):
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b"{}"


class Receiver:
    """Answers with the next of `answers`, the last one for ever."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[Request] = []
        self.answers: list[Answer] = [Answer()]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A server on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = made.answer(Request(self.command, self.path, headers, self.rfile.read(length)))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=[0.05], daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
