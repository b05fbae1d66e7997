"""The load: jobs made in bulk, at a rate by a process of its own, or posted by many clients at once."""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import psycopg
import uvloop

from app.domain.ids import uuid7s
from app.domain.job import NewJob
from app.store import jobs

PARAMETERS = '{"to": "john@example.com", "subject": "Daily Report"}'
USERS = [f"user_{n}" for n in range(1000)]
AHEAD_S = 2.0
"""How long before their time `producing` writes its jobs."""
STEP_S = 0.1
"""`producing` writes at such intervals what comes due in one."""


def new_jobs(times: list[datetime | None]) -> list[NewJob]:
    """Jobs for these times; None is now."""
    ids = uuid7s(len(times), time.time())
    return [
        NewJob(
            job_id=job_id,
            user_id=random.choice(USERS),
            task_id="bench",
            schedule_type="NOW" if at is None else "DATE",
            expression=None,
            timezone="UTC",
            run_at=at,
            due_at=None,
            parameters=PARAMETERS,
            max_retries=None,
            timeout_s=None,
            policies=None,
            overlap=None,
            expires_at=None,
            anchor_at=None,
        )
        for job_id, at in zip(ids, times, strict=True)
    ]


def recurring_jobs(count: int, expressions: list[str], first_runs: list[datetime], policies: str) -> list[NewJob]:
    """Cron jobs that take turns among the expressions; `first_runs` are the expressions' next times."""
    made = new_jobs([None] * count)
    for n, job in enumerate(made):
        job.schedule_type = "CRON"
        job.expression = expressions[n % len(expressions)]
        job.run_at = first_runs[n % len(expressions)]
        job.policies = policies
        job.overlap = "skip"
    return made


def insert(connection: psycopg.Connection[Any], times: list[datetime | None], batch: int = 1000) -> None:
    """Writes jobs as the API does with a batch, so many in a statement and commit."""
    for first in range(0, len(times), batch):
        jobs.insert(connection, new_jobs(times[first : first + batch]), "bench")


@contextmanager
def producing(url: str, rate: int, seconds: float, ahead_s: float = AHEAD_S) -> Iterator[mp.Process]:
    """A process that makes `rate` jobs a second that are due evenly over `seconds` from now + `ahead_s` + 1 s."""
    process = mp.get_context("spawn").Process(target=_produce, args=(url, rate, seconds, ahead_s), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _produce(url: str, rate: int, seconds: float, ahead_s: float) -> None:
    count = round(rate * STEP_S)
    start = time.time() + ahead_s + 1
    with psycopg.connect(url, autocommit=True) as connection:
        for step in range(round(seconds / STEP_S)):
            at = start + step * STEP_S
            time.sleep(max(0.0, at - ahead_s - time.time()))
            insert(connection, spread(datetime.fromtimestamp(at, UTC), STEP_S, count), count)


def spread(start: datetime, seconds: float, count: int) -> list[datetime | None]:
    """So many times, evenly over some seconds."""
    return [start + timedelta(seconds=seconds * n / count) for n in range(count)]


# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Answers:
    """What came of a load of requests."""

    ok: int = 0
    refused: int = 0
    seconds: float = 0.0

    @property
    def per_s(self) -> float:
        return self.ok / self.seconds


def body(number: int) -> dict[str, Any]:
    """What a client posts for one job for now."""
    return {"task_id": "bench", "user_id": USERS[number % len(USERS)], "parameters": json.loads(PARAMETERS)}


def singles(count: int) -> list[bytes]:
    """Bodies for POST /jobs."""
    return [json.dumps(body(n)).encode() for n in range(count)]


def batches(count: int, size: int) -> list[bytes]:
    """Bodies for POST /jobs/batch, of `size` jobs each."""
    return [json.dumps([body(n) for n in range(size)]).encode() for _ in range(count // size)]


def post(address: str, path: str, bodies: list[bytes], clients: int, pause_s: float = 0.0) -> Answers:
    """Posts every body once, over so many connections that are kept alive; each sends its next after an answer."""
    return uvloop.run(_post(address, path, bodies, clients, pause_s))


async def _post(address: str, path: str, bodies: list[bytes], clients: int, pause_s: float) -> Answers:
    answers, queue, started = Answers(), iter(bodies), time.monotonic()
    head_of_request = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    host, port = urlsplit(address).hostname, urlsplit(address).port

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for body in queue:
            length = f"Content-Length: {len(body)}\r\n\r\n"
            writer.write((head_of_request + length).encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(size)
            if head.startswith(b"HTTP/1.1 2"):
                answers.ok += 1
            else:
                answers.refused += 1
            if b"connection: close" in head.lower():
                writer.close()
                reader, writer = await asyncio.open_connection(host, port)
            if pause_s:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    answers.seconds = time.monotonic() - started
    return answers
