"""Wake-ups after the commit: at once while there are few, together where there are many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from app.store.channel import DUE, PLAN
from app.store.notifier import BURST, PERIOD_S, Notifier
from app.store.pool import Pool

Connection = psycopg.Connection[Any]


@pytest.fixture
def notifier(dsn: str, connection: Connection) -> Iterator[Notifier]:
    connection.execute(f"listen {DUE}")
    notifier = Notifier(Pool(dsn))
    yield notifier
    notifier.close()


def heard(connection: Connection, seconds: float, stop_after: int | None = None) -> list[int]:
    return [int(n.payload) for n in connection.notifies(timeout=seconds, stop_after=stop_after)]


def now_us() -> int:
    return int(time.time() * 1e6)


def test_many_jobs_at_once_are_few_wake_ups_and_the_earliest_is_among_them(
    notifier: Notifier, connection: Connection
) -> None:
    started, first = time.monotonic(), now_us()
    for n in range(2_000):
        notifier.due(first - 7 * n % 2_000)  # the earliest somewhere between the others
        time.sleep(0.0001)
    seconds = time.monotonic() - started
    found = heard(connection, 1.0)
    assert first - 1_999 in found
    assert 1 <= len(found) <= BURST + seconds / PERIOD_S + 2


def test_what_is_due_much_later_wakes_nobody(notifier: Notifier, connection: Connection) -> None:
    later, soon = now_us() + 60_000_000, now_us()
    notifier.due(later)
    assert heard(connection, 0.1) == [], "not even alone"
    notifier.due(soon)
    assert heard(connection, 5.0, stop_after=1) == [soon]


def test_few_wake_ups_go_along_with_their_transactions(notifier: Notifier) -> None:
    started = time.monotonic()
    rides = sum(notifier.rides() for _ in range(100))
    assert BURST <= rides <= BURST + (time.monotonic() - started) / PERIOD_S + 1
    time.sleep(PERIOD_S * BURST)
    assert notifier.rides()


def test_planners_hear_of_new_schedules_alone(notifier: Notifier, connection: Connection) -> None:
    connection.execute(f"listen {PLAN}")
    for plan in (False, True, False):
        notifier.due(now_us(), plan=plan)
        heard = {notification.channel for notification in connection.notifies(timeout=5.0, stop_after=1)}
        assert heard == ({DUE, PLAN} if plan else {DUE})
