"""What a worker makes of rows, results and errors that are not as they should be."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from workers.execution import ERROR_LIMIT, Execution, Unreadable, encode_result, failure, storable


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
