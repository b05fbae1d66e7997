"""The database's time through this host's monotonic clock."""

from __future__ import annotations

import time

from app.clock import Clock


def observe(clock: Clock, database_time: float, *, round_trip: float = 0.001) -> None:
    received = time.monotonic()
    clock.observe(database_time, received - round_trip, received)


def test_follows_the_database_not_this_host() -> None:
    clock = Clock()
    observe(clock, 1_000_000.0)
    assert 0 <= clock.now() - 1_000_000.0 < 1


def test_is_never_ahead_of_what_the_database_said() -> None:
    clock = Clock()
    received = time.monotonic()
    clock.observe(5_000.0, received - 0.2, received)
    assert clock.now() - 5_000.0 <= time.monotonic() - received


def test_a_loose_reading_does_not_replace_a_tight_one() -> None:
    clock = Clock()
    observe(clock, 1_000_000.0, round_trip=0.001)
    tight = clock.offset
    observe(clock, 1_000_000.0 - 0.02, round_trip=0.04)
    assert clock.offset == tight


def test_follows_a_step_of_the_database_clock() -> None:
    clock = Clock()
    observe(clock, 1_000_000.0)
    observe(clock, 1_003_600.0, round_trip=0.04)
    assert clock.now() >= 1_003_600.0


def test_knows_when_the_database_clock_was_set_and_when_it_only_seemed_so() -> None:
    clock = Clock()
    observe(clock, 1_000_000.0)
    observe(clock, 1_000_000.0 - 30, round_trip=40)
    observe(clock, 1_000_000.2)
    assert clock.set_at == float("-inf"), "a first reading, a loose one, and a small step tell of nobody"
    for step in (600, -3600):
        asked = time.monotonic()
        observe(clock, clock.now() + step)
        assert clock.set_at >= asked


def test_a_worker_host_an_hour_off_changes_nothing(monkeypatch) -> None:
    clock = Clock()
    observe(clock, 1_000_000.0)
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + 3600)
    assert clock.now() - 1_000_000.0 < 1
