"""Values as pages show them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.dashboard import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.0124, "12 ms"),
        (0.9996, "1 s"),
        (1.5, "1.5 s"),
        (99.4, "99.4 s"),
        (100, "100 s"),
        (150, "2.5 min"),
        (3_600, "60 min"),
        (9_000, "2.5 h"),
        (86_400 * 12, "12 d"),
        (-3, "−3 s"),
        (timedelta(milliseconds=250), "250 ms"),
        (None, "–"),
    ],
)
def test_a_span_is_short(value: float | timedelta | None, text: str) -> None:
    assert formats.span(value) == text


def test_a_share_is_never_rounded_up_to_all() -> None:
    assert formats.share(1) == "100 %"
    assert formats.share(0.999999) == "99.99 %"
    assert formats.share(0.9) == "90.0 %"
    assert formats.share(0) == "0 %"
    assert formats.share(0.00001) == "0.1 %"


def test_counts_and_sizes() -> None:
    assert formats.count(1234567) == "1,234,567"
    assert formats.count(0.5) == "0.5"
    assert formats.size(999) == "999 B"
    assert formats.size(1_500_000) == "1.5 MB"
    assert formats.plural(1, "job") == "1 job"
    assert formats.plural(2, "execution is", "executions are") == "2 executions are"


def test_text_is_cut_on_one_line() -> None:
    assert formats.brief("a\nb   c") == "a b c"
    assert formats.brief({"a": "ü"}) == '{"a": "ü"}'
    assert len(formats.brief("x" * 500)) == 120


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("there is no such job", "There is no such job."),
        ("It is over.", "It is over."),
        ("user_id: must be text", "user_id: must be text."),
        ("end_time must be later", "end_time must be later."),
        ("", ""),
    ],
)
def test_what_the_api_says_becomes_a_sentence(given: str, said: str) -> None:
    assert formats.as_sentence(given) == said
