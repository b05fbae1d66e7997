"""Waiting for what other processes do, without guessing how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(predicate: Callable[[], T], timeout: float = 10, interval: float = 0.02) -> T:
    """The first truthy value of `predicate`, asked every `interval` seconds; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        assert time.monotonic() < deadline, f"not within {timeout} s; the last value was {value!r}"
        time.sleep(interval)
    return value
