"""Where the next claim begins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from workers.execution import DUE_AT, PRIORITY
from workers.scan import BEGINNING, NEAR_MARGIN_S, NEVER, Scan, looks_at, partition_of

NOW = 1_800_000_000.0


def row(due_at: float, priority: int = 2) -> list[Any]:
    columns: list[Any] = [None] * 14
    columns[DUE_AT], columns[PRIORITY] = due_at, priority
    return columns


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds - NEAR_MARGIN_S, UTC)


def test_the_floor_follows_what_was_claimed() -> None:
    scan = Scan()
    scan.seen([row(NOW - 20), row(NOW - 10)], NOW, full=False)
    assert scan.floors[1] == at(NOW - 20)


def test_without_rows_the_floor_stays_a_margin_behind_now() -> None:
    scan = Scan()
    scan.seen([], NOW, full=False)
    assert scan.floors == [at(NOW)] * 4


def test_rows_claimed_ahead_of_their_time_do_not_raise_it_above_now() -> None:
    scan = Scan()
    scan.seen([row(NOW + 0.4)], NOW, full=False)
    assert scan.floors[1] == at(NOW)


def test_a_full_claim_says_nothing_about_lower_priorities() -> None:
    scan = Scan()
    scan.seen([row(NOW - 60, priority=1), row(NOW - 50, priority=2)], NOW, full=True)
    assert scan.floors == [at(NOW - 60), at(NOW - 50), BEGINNING, BEGINNING]


def test_an_earlier_due_time_lowers_every_floor() -> None:
    scan = Scan()
    scan.seen([], NOW, full=False)
    scan.lower(datetime.fromtimestamp(NOW - 3600, UTC))
    assert set(scan.floors) == {datetime.fromtimestamp(NOW - 3600, UTC)}


def test_a_time_told_of_while_a_claim_is_under_way_is_not_forgotten() -> None:
    scan = Scan()
    scan.begin(NOW, look_back_s=60)
    earlier = datetime.fromtimestamp(NOW - 3600, UTC)
    scan.lower(earlier, [2])
    scan.seen([], NOW, full=False)
    assert scan.floors == [at(NOW), earlier, at(NOW), at(NOW)]
    assert scan.begin(NOW, look_back_s=60) == scan.floors
    scan.seen([], NOW, full=False)
    assert scan.floors == [at(NOW)] * 4


def test_a_full_claim_of_old_rows_is_a_backlog() -> None:
    scan = Scan()
    scan.seen([row(NOW - 60)], NOW, full=True)
    assert scan.backlog
    scan.seen([row(NOW - 60)], NOW, full=False)
    assert not scan.backlog


def test_several_hours_are_looked_at_for_one_priority_before_the_next() -> None:
    hours = [datetime(2026, 11, 30, hour, tzinfo=UTC) for hour in (9, 10)]
    names = [partition_of(hour) for hour in hours]
    floors = [hours[1], *([hours[0]] * 3)]
    looks = looks_at(floors, names)
    assert [(name, [n for n, floor in enumerate(only, 1) if floor != NEVER]) for name, only in looks] == [
        ("pending_executions_20261130_1000", [1]),
        *((name, [lane]) for lane in (2, 3, 4) for name in names),
    ]
    assert looks_at(floors, names[:1]) == [(names[0], floors)]
