"""Expressions in plain English."""

from __future__ import annotations

import pytest

from app.schedule.cron import parse


@pytest.mark.parametrize(
    ("expression", "description"),
    [
        ("0 10 * * *", "at 10:00 every day"),
        ("*/5 * * * *", "every 5 minutes"),
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("0 * * * *", "every hour"),
        ("30 * * * *", "at minute 30 of every hour"),
        ("*/40 * * * *", "at minutes 0 and 40 of every hour"),
        ("0 */2 * * *", "every 2 hours"),
        ("5 */2 * * *", "at minute 5 of every 2nd hour"),
        ("30 1,2 * * *", "at 01:30 and 02:30 every day"),
        ("*/5 9-17 * * 1-5", "every 5 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("15 30 9 * * 1", "at 09:30:15 on Monday"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 LW * *", "at 00:00 on the last weekday of the month"),
        ("0 0 15W * *", "at 00:00 on the weekday nearest day 15 of the month"),
        ("0 0 * * 5#2", "at 00:00 on the second Friday of the month"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month and on Friday"),
        ("0 0 1-7 * */7", "at 00:00 on days 1–7 of the month, if it is Sunday"),
        ("0 9 * 1,7 *", "at 09:00 every day in January and July"),
        ("@yearly", "at 00:00 on day 1 of the month in January"),
        ("@weekly", "at 00:00 on Sunday"),
        ("@every 1h30m", "every 1 hour 30 minutes"),
        ("@every 1s", "every second"),
        ("@every 3600s", "every hour"),
    ],
)
def test_descriptions(expression: str, description: str) -> None:
    assert parse(expression, "UTC").describe() == description
