"""The first page says one thing in all its places."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask, g

from app.dashboard.pages import overview
from app.schedule.zones import zone

NOW = datetime(2026, 11, 30, 14, 10, 20, tzinfo=UTC)


@pytest.fixture(autouse=True)
def viewer() -> Iterator[None]:
    with Flask("test").test_request_context():
        g.zone = zone("UTC")
        yield


def minute(ago: int, **counts: int) -> dict[str, Any]:
    at = NOW.replace(second=0, microsecond=0) - timedelta(minutes=ago)
    none = {"started": 0, "failed": 0, "retried": 0, "within": 0, "p50_ms": 5.0, "p99_ms": 9.0}
    return {"minute": at, **none, **counts}


def test_failures_of_the_running_minute_are_in_the_sum_and_in_the_plot() -> None:
    rows = [minute(59, started=2, failed=1, within=2), minute(0, started=3, failed=2, retried=4, within=3)]
    plots = {plot.title: plot for plot in overview.plots_of(rows, NOW)}
    failures = plots["Failures per minute"]
    assert failures.summary == "3 for good, 4 retried"
    assert [row[:2] for row in failures.table] == [["14:10", "2"], ["13:11", "1"]]
    starts = plots["Starts per second"]
    assert [row[0] for row in starts.table] == ["13:11"], "the running minute has no rate yet"


def test_few_starts_are_not_rounded_to_none() -> None:
    plots = overview.plots_of([minute(1, started=8, within=8)], NOW)
    assert plots[0].summary == "0.00222 on average"
