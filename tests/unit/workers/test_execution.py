"""What a worker makes of rows, results and errors that are not as they should be."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from workers.execution import (
    ERROR_LIMIT,
    Ended,
    Execution,
    Failed,
    Snoozed,
    Unreadable,
    encode_result,
    failure,
    outcome_of,
    storable,
)
from workers.signals import Cancel, Rejected, Retry, Snooze


def execution(parameters: str | None) -> Execution:
    row: list[Any] = [1, "job", 0.0, 0, 7, 2, 1, 0, False, None, "user", parameters, None, None, None]
    return Execution(row, SimpleNamespace(max_retries=3, timeout=None), 0.0)  # type: ignore[arg-type]


def test_parameters_are_decoded() -> None:
    assert execution('{"a": 1}').decode_parameters() == {"a": 1}


@pytest.mark.parametrize("parameters", [None, "[1]", "{", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_a_row_that_cannot_be_read_is_its_own_failure(parameters: str | None) -> None:
    with pytest.raises(Unreadable):
        execution(parameters).decode_parameters()


def test_errors_are_made_storable() -> None:
    assert storable("a\x00b\ud800c") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert len(storable("x" * 1_000_000)) < ERROR_LIMIT + 100


def test_results_are_made_storable() -> None:
    text = encode_result({"k\x00": ["a\x00", "\ud800", "\N{GRINNING FACE}", r"\u0000"]})
    assert text is not None
    assert json.loads(text) == {
        "k\N{REPLACEMENT CHARACTER}": [
            "a\N{REPLACEMENT CHARACTER}",
            "\N{REPLACEMENT CHARACTER}",
            "\N{GRINNING FACE}",
            r"\u0000",
        ]
    }


@pytest.mark.parametrize("result", [float("nan"), {1, 2}, object()])
def test_a_result_that_is_not_json_is_refused(result: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_result(result)


def test_a_failure_keeps_type_text_and_the_end_of_the_trace() -> None:
    try:
        raise ValueError("no such customer\x00")
    except ValueError as error:
        outcome = failure(error)
    assert outcome.error == "ValueError: no such customer\N{REPLACEMENT CHARACTER}"
    assert outcome.trace is not None
    assert "raise ValueError" in outcome.trace


class Wordless(BaseException):
    def __str__(self) -> str:
        raise self


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SyntaxError("bad", ("file", 1, "x", "text")), "SyntaxError: bad (file, line 1)"),  # type: ignore[arg-type]
        (Wordless(), "Wordless, whose text cannot be had"),
    ],
)
def test_an_error_that_cannot_be_formatted_is_a_failure_like_others(error: BaseException, said: str) -> None:
    try:
        raise error
    except BaseException as raised:
        outcome = failure(raised)
    assert outcome.error == said
    assert outcome.trace is not None
    assert "raise error" in outcome.trace


@pytest.mark.parametrize(
    ("pause", "seconds"),
    [(2, 2.0), (0.5, 0.5), (timedelta(minutes=1), 60.0), (Decimal("1.5"), 1.5), (10**400, math.inf)],
)
def test_a_pause_is_a_number_of_seconds_or_a_timedelta(pause: Any, seconds: float) -> None:
    assert outcome_of(Snooze(pause)) == Snoozed(seconds)
    assert outcome_of(Retry("later", after=pause)) == Failed("later", after_s=seconds)


@pytest.mark.parametrize("pause", ["1", [1], 1j])
def test_any_other_pause_is_a_failure_for_good(pause: Any) -> None:
    says = f"takes seconds or a timedelta, not {pause!r}"
    assert outcome_of(Snooze(pause)) == Failed(f"Snooze(…) {says}", final=True)
    assert outcome_of(Retry(after=pause)) == Failed(f"Retry(after=…) {says}", final=True)
    assert isinstance(outcome_of(Snooze(None)), Failed)  # type: ignore[arg-type]


def test_the_reason_of_a_way_out_may_be_anything() -> None:
    reason: Any = ValueError("no\x00such order")
    text = "no\N{REPLACEMENT CHARACTER}such order"
    assert outcome_of(Cancel(reason)) == Ended("CANCELLED", text)
    assert outcome_of(Retry(reason)) == Failed(text)
    assert outcome_of(Rejected(reason)) == Failed(text, final=True)
    wordless: Any = Wordless()
    assert isinstance(outcome_of(Cancel(wordless)), Failed)
