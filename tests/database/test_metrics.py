"""/metrics of the API and of a worker: every metric that is declared is there, with the numbers that were made."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from typing import Any

import psycopg
from prometheus_client.parser import text_string_to_metric_families

from app import events
from app.metrics import METRICS
from tests.support.api import Api
from workers import health, metrics
from workers.registry import Task
from workers.slots import Slots
from workers.stats import LATENESS_BOUNDS_MS, Counts

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def declared(found: Samples) -> set[str]:
    """The metrics that series belong to."""
    names = {name for name, _ in found}
    return {metric for metric in METRICS if any(name.startswith(metric) for name in names)}


def worker_page() -> str:
    async def send(to: str) -> None: ...

    task = Task("send_email", send, "async", __name__)
    late = [0] * (len(LATENESS_BOUNDS_MS) + 1)
    late[0], late[-1] = 9, 1
    counts = Counts(started=10, completed=8, failed=1, retried=1, run_s=2.5, late_s=70.0, lateness=late)
    slots = [Slots("async", 1000, {1: task}, taken=3)]
    facts = {"ok": True, "unreported": 2, "loops": {"claims": {"seconds_ago": 0.1}}}
    return metrics.page({1: counts}, slots, facts, 0.004, 0.0).decode()


def test_api_and_worker_together_have_every_metric(api: Api, connection: psycopg.Connection[Any]) -> None:
    connection.execute("insert into pgtick.findings (kind, subject, sentence) values ('late', 'x', 'y')")
    of_api = samples(api.call("GET", "/metrics").text)
    events.counts.setdefault("lease_lost", 0)
    assert declared(of_api) | declared(samples(worker_page())) == set(METRICS)


def test_the_api_counts_what_waits_in_the_database(api: Api, connection: psycopg.Connection[Any]) -> None:
    api.created()
    api.created(schedule="0 10 * * *")
    connection.execute("update pgtick.pending_executions set due_at = now() - interval '1 minute'")
    found = samples(api.call("GET", "/metrics").text)
    assert found["pgtick_queue_depth", ("default",)] == found["pgtick_queue_late", ("default",)] == 1
    assert 60 <= found["pgtick_queue_oldest_seconds", ("default",)] < 70
    assert found["pgtick_schedules", ("active",)] == 1
    assert found["pgtick_workers", ()] == 0
    assert found["pgtick_partition_runway_seconds", ("pending_executions",)] > 3600
    assert found["pgtick_schedule_lag_seconds", ()] == 0


def test_what_waits_for_a_paused_task_is_old_and_not_late(api: Api, connection: psycopg.Connection[Any]) -> None:
    api.created(task_id="send_email")
    connection.execute("update pgtick.pending_executions set due_at = now() - interval '1 minute'")
    connection.execute("select pgtick.pause_task('send_email')")
    found = samples(api.call("GET", "/metrics").text)
    assert found["pgtick_queue_oldest_seconds", ("default",)] >= 60
    assert found["pgtick_queue_late", ("default",)] == 0


def test_a_worker_tells_what_it_ran() -> None:
    found = samples(worker_page())
    assert found["pgtick_starts_total", ("send_email",)] == 10
    assert found["pgtick_run_seconds_sum", ("send_email",)] == 2.5
    assert found["pgtick_lateness_seconds_bucket", ("2.0", "send_email")] == 9
    assert found["pgtick_lateness_seconds_bucket", ("+Inf", "send_email")] == 10
    assert found["pgtick_lateness_seconds_sum", ("send_email",)] == 70
    assert found["pgtick_slots_taken", ("async",)] == 3


def test_the_health_port_serves_metrics_beside_healthz() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def get(path: str) -> tuple[str, bytes]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.headers["Content-Type"], answer.read()

    async def ask() -> list[tuple[str, bytes]]:
        server = await health.serve(port, lambda: {"ok": True}, lambda: b"pgtick_workers 1\n")
        async with server:
            return [await asyncio.to_thread(get, path) for path in ("/metrics", "/healthz")]

    assert asyncio.run(ask()) == [
        ("text/plain; version=0.0.4; charset=utf-8", b"pgtick_workers 1\n"),
        ("application/json", b'{"ok": true}'),
    ]
