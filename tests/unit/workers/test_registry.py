"""Registering tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.errors import SettingsError
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


def test_a_decorator_without_a_name_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a name"):

        @task  # type: ignore[arg-type]
        def nameless() -> None: ...


@pytest.mark.parametrize("name", ["", "send invoice", "-x", "rechnungslauf_für_müller", "x" * 201])
def test_a_name_that_the_database_would_refuse_is_refused_where_it_stands(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 letters"):
        task(name)


@pytest.mark.parametrize("missing", ["no_such_module", "no_such.module", "workers.no_such"])
def test_modules_that_are_not_there_are_named(missing: str) -> None:
    with pytest.raises(SettingsError, match=f"PGTICK_TASKS: there is no module {missing}: "):
        registry.load([missing])


def test_what_a_module_of_tasks_lacks_itself_comes_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wants_more.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        registry.load(["wants_more"])


@pytest.mark.parametrize(("name", "value"), [("priority", 0), ("priority", 5), ("max_retries", -1), ("timeout", 0)])
def test_bad_options_are_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        task("x", **{name: value})
