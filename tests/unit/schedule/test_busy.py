"""Starts per hour and minute of many schedules."""

from __future__ import annotations

from datetime import UTC, datetime

from app.schedule.busy import starts_per_hour, starts_per_minute

START = datetime(2026, 10, 24, 20, tzinfo=UTC)


def test_every_start_is_counted_in_its_hour() -> None:
    grids = [("0 * * * *", "UTC", 2), ("*/15 * * * *", "UTC", 1), ("30 2 * * *", "Europe/Berlin", 5)]
    busy = starts_per_hour(grids, START, 6, budget_s=60)
    # 02:30 in Berlin comes twice in that night, and the job runs at the first, 00:30 UTC.
    assert busy.starts == [6, 6, 6, 6, 11, 6]
    assert busy.left == 0


def test_what_is_no_schedule_starts_nothing() -> None:
    assert starts_per_hour([("nonsense", "UTC", 3), ("* * * * *", "Mars/Olympus", 3)], START, 2).starts == [0, 0]


def test_without_time_it_says_how_many_are_left_and_goes_on_later() -> None:
    grids = [(f"{n} 1 * * *", "UTC", 10) for n in range(60)]
    assert starts_per_hour(grids, START, 24, budget_s=-1).left == 600
    assert starts_per_hour(grids, START, 24, budget_s=60) == ([0] * 5 + [600] + [0] * 18, 0)


def test_herds_show_by_the_minute() -> None:
    start = datetime(2026, 3, 2, 23, tzinfo=UTC)
    counts, _ = starts_per_minute(
        [
            ("* * * * *", "UTC", 10),
            ("0 0 * * *", "UTC", 100_000),
            ("0 0 * * *", "Europe/Berlin", 7),
            ("*/10 * * * * *", "UTC", 2),
            ("not a schedule", "UTC", 5),
            ("0 0 30 2 *", "UTC", 5),
        ],
        start,
        1440,
        budget_s=60,
    )
    assert len(counts) == 1440
    assert counts[0] == 10 + 7 + 12
    assert counts[1] == 22
    assert counts[60] == 100_022
    assert sum(counts) == 1440 * 22 + 100_007
