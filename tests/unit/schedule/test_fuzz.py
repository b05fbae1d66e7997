"""Whatever is sent as a schedule, the answer is a schedule or a ScheduleError, quickly.

PGTICK_TEST_FUZZ sets how many strings are tried, 2,000 by default.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from app.schedule.cron import parse
from app.schedule.dates import parse_date
from app.schedule.errors import ScheduleError, ScheduleErrors
from app.schedule.policies import Policies

COUNT = int(os.environ.get("PGTICK_TEST_FUZZ", "2000"))
NOW = datetime(2026, 3, 1, tzinfo=UTC)
PIECES = [
    "*", "*/", "/", "-", ",", "#", "?", "L", "W", "LW", "l", "H", "R", "H(1-5)", "@", "@every ", "@reboot",
    "@daily", "0", "5", "7", "31", "59", "60", "99999999999999999999", "-1", "1.5", "1e9", "MON", "jan", "FOO",
    "sun-sat", "1-5/2", "22-2", " ", " ", " ", " ", " ", "\t", "\n", "\x00", "\ud800", "é", "٣", "²", "\u3000",
    "🕐", "2026-03-08", "T", "02:30", "Z", "+05:30", "+99:99", "24:00", "UTC", "../", "Europe/",
    "'; DROP TABLE jobs; --", "%s", "{}", "1h", "30s", "0x10", "_",
]  # fmt: skip


def strings(seed: int) -> list[str]:
    rng = random.Random(seed)
    made = []
    for number in range(COUNT):
        kind = number % 4
        if kind == 0:
            text = "".join(rng.choices(PIECES, k=rng.randint(0, 14)))
        elif kind == 1:
            text = " ".join("".join(rng.choices(PIECES[:34], k=rng.randint(1, 4))) for _ in range(rng.randint(4, 7)))
        elif kind == 2:
            text = "".join(
                chr(rng.choice([rng.randint(0, 127), rng.randint(0, 0x10FFFF)])) for _ in range(rng.randint(0, 30))
            )
        else:
            text = list_of(rng, "*/5 0-23 1,15 JAN-DEC 1#2" if number % 8 == 3 else "2026-03-08T02:30:00.123+05:30")
        made.append(text)
    return made


def list_of(rng: random.Random, text: str) -> str:
    """A valid text with a few characters changed."""
    characters = list(text)
    for _ in range(rng.randint(1, 4)):
        characters[rng.randrange(len(characters))] = rng.choice("0123456789*/-,#LWHR@?TZ:+ \0é")
    return "".join(characters)


def refusals(attempt: Callable[[], object]) -> list[ScheduleError]:
    """The errors that a user gets; empty when what was sent is valid. Anything but a ScheduleError fails the test."""
    try:
        attempt()
    except ScheduleError as error:
        return [error]
    except ScheduleErrors as errors:
        return errors.errors
    return []


def test_junk_only_ever_raises_schedule_errors() -> None:
    valid = 0
    begun = time.process_time()
    for text in strings(1):
        for attempt in (_expression, _timezone, _date, _local_date, _exclusion, _policy):
            errors = refusals(partial(attempt, text))
            valid += not errors
            for error in errors:
                str(error).encode()
                assert error.field
                assert error.rule
    assert valid > COUNT // 50, "some of it must be valid, or nothing is tried"
    assert (time.process_time() - begun) / COUNT < 0.010


def _expression(text: str) -> None:
    schedule = parse(text, "America/New_York")
    after = schedule.next(NOW)
    assert after is None or after > NOW
    assert schedule.describe()


def _timezone(text: str) -> None:
    parse("* * * * *", text)


def _date(text: str) -> None:
    assert parse_date(text, None, NOW)[0].utcoffset() is not None


def _local_date(text: str) -> None:
    parse_date(text, "America/New_York", NOW)


def _exclusion(text: str) -> None:
    Policies.from_dict({"exclude": [text]}, recurring=True)


def _policy(text: str) -> None:
    Policies.from_dict({"gap": text, text: text}, recurring=True)


def test_any_json_as_policies() -> None:
    rng = random.Random(2)
    names = [*Policies.defaults(recurring=True).full_dict(), "unknown"]
    values: list[Any] = [
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e308,
        10**400,
        "",
        "skip",
        "latest",
        [],
        [None],
        {},
        {"a": 1},
        "\0",
    ]
    for _ in range(COUNT):
        given = {rng.choice(names): rng.choice(values) for _ in range(rng.randint(0, 4))}
        recurring = rng.random() < 0.5
        assert all(error.field.startswith("policies") for error in refusals(partial(_round_trip, given, recurring)))


def _round_trip(given: dict[str, Any], recurring: bool) -> None:
    policies = Policies.from_dict(given, recurring)
    assert Policies.from_dict(policies.to_dict(), recurring) == policies
