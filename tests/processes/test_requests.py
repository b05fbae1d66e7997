"""What is no request, or more than one may be, as the server itself meets it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support.processes import Served, serving

POST = (
    b"POST /jobs/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture
def served(dsn: str, connection: psycopg.Connection[Any]) -> Iterator[Served]:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('noop', 'x')")
    with serving(dsn) as served:
        yield served


def answer_to(served: Served, sent: bytes) -> tuple[int, str, Any]:
    """Status, type and JSON of the answer to bytes as they are."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as client:
        client.sendall(sent)
        got = client.makefile("rb")
        status = int(got.readline().split()[1])
        headers = {}
        while line := got.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers["content-type"], json.loads(got.read(int(headers["content-length"])))


def test_what_is_refused_before_it_is_a_request_is_a_problem_too(
    served: Served, connection: psycopg.Connection[Any]
) -> None:
    line = b'{"task_id": "noop", "parameters": {"x": "' + b"x" * 980 + b'"}}\n'
    chunk = f"{len(line):x}\r\n".encode() + line + b"\r\n"
    for sent, expected in (
        (b"nonsense\r\n\r\n", 400),
        (b"ge{t / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 9_000 + b"\r\n\r\n", 431),
        (POST + b"zz\r\n", 400),
        (POST + 9_000 * chunk + b"0\r\n\r\n", 413),
    ):
        status, kind, problem = answer_to(served, sent)
        assert (status, kind, problem["status"]) == (expected, "application/problem+json", expected)
    assert connection.execute("select count(*) from pgtick.jobs").fetchone() == (0,)
    assert answer_to(served, POST + 9 * chunk + b"0\r\n\r\n")[2]["created"] == 9
