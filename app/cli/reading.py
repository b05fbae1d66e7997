"""What commands are given: texts that are JSON or times."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from app.schedule.dates import parse_instant
from app.schedule.errors import ScheduleError


def json_of(text: str, option: str) -> Any:
    """The value of a JSON text; raises BadParameter."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint=option) from None


def instant(text: str, option: str, parse: Callable[[object, str], datetime] = parse_instant) -> datetime:
    """A time, ISO 8601 with an offset; raises BadParameter."""
    try:
        return parse(text, option)
    except ScheduleError as error:
        raise click.BadParameter(error.rule, param_hint=option) from None
