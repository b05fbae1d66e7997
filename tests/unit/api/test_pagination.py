"""Limits of pages, from what a query says."""

from __future__ import annotations

import pytest

from app.api.pagination import MAX_LIMIT, read_limit
from app.api.problems import Problem


def test_a_page_holds_as_many_as_asked_for_and_no_more_than_there_may_be() -> None:
    asked = (None, "1", "007", str(MAX_LIMIT), str(MAX_LIMIT + 1), "999999999")
    assert [read_limit(text) for text in asked] == [50, 1, 7, MAX_LIMIT, MAX_LIMIT, MAX_LIMIT]


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1e3", " 1", "+1", "²", "٣", "1" * 5_000])
def test_what_is_no_number_of_items_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="limit"):
        read_limit(text)
