"""Back-off between attempts."""

from __future__ import annotations

import pytest

from app.domain.retry import DAY_S, Backoff


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 5), (2, 25), (3, 125)])
def test_waits_5_25_125_seconds(attempt: int, seconds: float) -> None:
    assert Backoff().delay_s(attempt) == seconds


@pytest.mark.parametrize("attempt", [8, 30, 1_000, 32_767])
def test_never_waits_longer_than_a_day(attempt: int) -> None:
    assert Backoff().delay_s(attempt) == DAY_S


def test_base_factor_and_cap_are_the_tasks_choice() -> None:
    backoff = Backoff(base_s=0.1, factor=2, cap_s=0.3)
    assert [round(backoff.delay_s(n), 3) for n in (1, 2, 3)] == [0.1, 0.2, 0.3]
