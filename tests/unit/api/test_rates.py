"""The bucket of each token: bursts are let through, more than the rate over time is not."""

from __future__ import annotations

import pytest

from app.api.rates import BURST_S, Rates


def test_a_burst_passes_and_then_the_rate() -> None:
    rates = Rates(10)
    passed = sum(rates.pause_s("ann", 100.0) == 0 for _ in range(100))
    assert passed == BURST_S * 10
    assert rates.pause_s("ann", 100.0) == pytest.approx(0.1)
    later = sum(rates.pause_s("ann", 100.0 + n / 100) == 0 for n in range(1000))
    assert later == pytest.approx(100, abs=1)
    assert rates.pause_s("bob", 100.0) == 0


def test_slower_than_one_a_second_lets_one_pass() -> None:
    rates = Rates(0.1)
    assert rates.pause_s("ann", 0.0) == 0
    assert rates.pause_s("ann", 0.0) > 0
    assert rates.pause_s("ann", 10.1) == 0
