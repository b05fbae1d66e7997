"""The time axis of the partitions: the names of days stay inside, at whatever hour one looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flask import Flask, g

from app.dashboard.pages.database import LEFT, WIDE, ticks
from app.schedule.zones import zone


def test_the_names_of_days_are_not_cut_off_at_any_hour() -> None:
    half = 25  # of a name, at the size of a phone
    with Flask("test").test_request_context():
        g.zone = zone("Europe/Berlin")
        for hour in range(24):
            places = [place for place, _ in ticks(datetime(2026, 11, 30, tzinfo=UTC) + timedelta(hours=hour))]
            assert len(places) in (3, 4)
            assert LEFT + half <= min(places) < max(places) <= WIDE - LEFT - half, f"at {hour} h"
