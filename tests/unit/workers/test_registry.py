"""Registering tasks."""

from __future__ import annotations

from typing import Any

import pytest

from workers import registry
from workers.registry import DuplicateTask, task


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "registered", {})


def test_async_functions_run_on_the_loop_and_plain_ones_in_threads() -> None:
    @task("a")
    async def a() -> None: ...

    @task("b")
    def b() -> None: ...

    @task("c", isolation="process")
    async def c() -> None: ...

    assert [registry.registered[name].pool for name in "abc"] == ["async", "thread", "process"]


def test_the_function_stays_what_it_is() -> None:
    @task("double")
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8


def test_one_name_for_two_functions_is_refused() -> None:
    @task("same")
    def one() -> None: ...

    with pytest.raises(DuplicateTask, match="same"):

        @task("same")
        def two() -> None: ...


@pytest.mark.parametrize(("name", "value"), [("priority", 0), ("priority", 5), ("max_retries", -1), ("timeout", 0)])
def test_bad_options_are_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        task("x", **{name: value})
