"""What commands are given: texts, names, JSON, times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from app.schedule.dates import parse_instant
from app.schedule.errors import ScheduleError


class Text(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click alone
    """What matches a pattern whole. By default it is not empty: a shell's variable that is not set is no filter."""

    name = "text"

    def __init__(self, pattern: str | re.Pattern[str] = r"(?s).+", rule: str = "must not be empty") -> None:
        self._pattern = re.compile(pattern)
        self._rule = rule

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not self._pattern.fullmatch(value):
            self.fail(self._rule, param, ctx)
        return value


TEXT = Text()
NAME = Text(r"[^\x00-\x1f\x7f]{1,200}", "must have 1 to 200 characters, none of them a control character")


def json_of(text: str, option: str) -> Any:
    """The value of a JSON text; raises BadParameter."""
    try:
        return json_value(text, option)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint=option) from None


def json_value(text: str, option: str) -> Any:
    """The same; raises ValueError for a text that is not JSON, and BadParameter for JSON that is refused."""

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise click.BadParameter(f"a key is there twice in {text[:100]}", param_hint=option)
        return made

    try:
        return json.loads(text, object_pairs_hook=read_object)
    except RecursionError:
        raise click.BadParameter("is nested too deep", param_hint=option) from None


def instant(text: str, option: str, parse: Callable[[object, str], datetime] = parse_instant) -> datetime:
    """A time, ISO 8601 with an offset; raises BadParameter."""
    try:
        return parse(text, option)
    except ScheduleError as error:
        raise click.BadParameter(error.rule, param_hint=option) from None
