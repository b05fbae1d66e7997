"""Array literals."""

from __future__ import annotations

from datetime import UTC, datetime

from app.store import arrays


def test_texts_are_quoted() -> None:
    assert arrays.texts(["a", None, 'say "hi"', "back\\slash", "{x,y}", "NULL", ""]) == (
        '{"a",NULL,"say \\"hi\\"","back\\\\slash","{x,y}","NULL",""}'
    )


def test_a_column_of_nulls_is_empty_because_unnest_pads() -> None:
    assert arrays.texts([None, None]) == arrays.plain([None]) == arrays.times([None]) == "{}"


def test_times_keep_their_microseconds() -> None:
    assert arrays.times([datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None]) == (
        '{"2026-01-01T00:00:00.000001+00:00",NULL}'
    )
