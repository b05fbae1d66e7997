"""Reads cron expressions, and refuses those that cannot be meant.

croniter expands names, bounds and ranges. What it reads differently from cron is settled here: steps over wrapping
ranges, ranges of one value, and the `#`, `L` and `W` forms in lists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from croniter import CroniterError, croniter

from app.schedule.errors import ScheduleError, shown
from app.schedule.fields import LAST, Fields

MAX_LENGTH = 256
FIELD = "schedule.expression"

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True)
class _Kind:
    """One position of an expression; `place` is where croniter has it in its five fields."""

    name: str
    low: int
    high: int
    place: int

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def all(self) -> tuple[int, ...]:
        return tuple(range(self.low, self.high + 1))


# Seconds have a minute's values and are expanded as one.
_SECOND = _Kind("second", 0, 59, 0)
_MINUTE = _Kind("minute", 0, 59, 0)
_HOUR = _Kind("hour", 0, 23, 1)
_DAY = _Kind("day of month", 1, 31, 2)
_MONTH = _Kind("month", 1, 12, 3)
_WEEKDAY = _Kind("day of week", 0, 6, 4)
_KINDS = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)

_VALUE = r"\d{1,4}|[A-Z]{3}"
_PLAIN = re.compile(rf"(?P<base>\*|\?|(?P<low>{_VALUE})(?:-(?P<high>{_VALUE}))?)(?:/(?P<step>\d{{1,9}}))?", re.ASCII)
_NEAREST = re.compile(r"(\d{1,2})W|W(\d{1,2})", re.ASCII)
_NTH = re.compile(rf"({_VALUE})#(\d{{1,9}})", re.ASCII)
_LAST = re.compile(rf"({_VALUE})L|L({_VALUE})", re.ASCII)
_HASHED = re.compile(r"[HR](\(.*\))?(/.*)?", re.ASCII)


def _wrong(rule: str) -> ScheduleError:
    return ScheduleError(FIELD, rule)


def check_text(expression: object) -> str:
    """The expression without surrounding blanks, once it is text that could be one."""
    if not isinstance(expression, str):
        raise _wrong("the expression must be a string such as */5 * * * *")
    if len(expression) > MAX_LENGTH:
        raise _wrong(f"the expression has {len(expression)} characters; at most {MAX_LENGTH} are allowed")
    text = expression.strip(" \t")
    if not text:
        raise _wrong("the expression is empty")
    if not all(" " <= character <= "~" or character == "\t" for character in text):
        raise _wrong("the expression may hold only printable ASCII characters, blanks and tabs")
    return text


@lru_cache(maxsize=16_384)
def parse_fields(text: str) -> Fields:
    """Reads a macro, or five or six fields; `text` has passed `check_text`. Raises ScheduleError."""
    words = _words(text)
    seconds, minutes, hours = (_plain(kind, word) for kind, word in zip(_KINDS[:3], words[:3], strict=True))
    days, nearest = _days(words[3])
    weekdays, nths = _weekdays(words[5])
    fields = Fields(
        words=tuple(words),
        seconds=tuple(sorted(seconds)),
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        nearest=nearest,
        months=frozenset(_plain(_MONTH, words[4])),
        weekdays=weekdays,
        nths=nths,
    )
    if not fields.ever():
        raise _wrong(f"no month has such a day: day of month {shown(words[3])}, month {shown(words[4])}")
    return fields


def _words(text: str) -> list[str]:
    if text.startswith("@"):
        if text.casefold() == "@reboot":
            raise _wrong("@reboot names no time: a job here belongs to no machine that could reboot")
        try:
            text = MACROS[text.casefold()]
        except KeyError:
            known = ", ".join([*MACROS, "@every 5m"])
            raise _wrong(f"{shown(text)} is not a macro; there are {known}") from None
    words = text.upper().split()
    if len(words) == 5:
        return ["0", *words]
    if len(words) == 6:
        return words
    year = "; years are not supported" if len(words) == 7 else ""
    raise _wrong(f"expected 5 fields, or 6 with seconds first, but found {len(words)}{year}")


def _plain(kind: _Kind, word: str) -> set[int]:
    return {value for item in word.split(",") for value in _item(kind, item)}


def _days(word: str) -> tuple[frozenset[int], frozenset[int]]:
    days: set[int] = set()
    nearest: set[int] = set()
    for item in word.split(","):
        if item == "L":
            days.add(LAST)
        elif item == "LW":
            nearest.add(LAST)
        elif found := _NEAREST.fullmatch(item):
            nearest.add(_number(_DAY, found[1] or found[2]))
        else:
            days.update(_item(_DAY, item))
    return frozenset(days), frozenset(nearest)


def _weekdays(word: str) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    weekdays: set[int] = set()
    nths: set[tuple[int, int]] = set()
    for item in word.split(","):
        if found := _NTH.fullmatch(item):
            if not 1 <= int(found[2]) <= 5:
                raise _wrong(f"day of week {shown(item)}: a month has a first to a fifth of each weekday, 1 to 5")
            nths.add((_number(_WEEKDAY, found[1]), int(found[2])))
        elif found := _LAST.fullmatch(item):
            nths.add((_number(_WEEKDAY, found[1] or found[2]), LAST))
        else:
            weekdays.update(_item(_WEEKDAY, item))
    return frozenset(weekdays), frozenset(nths)


def _item(kind: _Kind, item: str) -> tuple[int, ...]:
    """The values of one item of a list: `*`, `5`, `mon-fri`, `*/10`, `22-2/2`, `5/15`, in the order they come up."""
    found = _PLAIN.fullmatch(item)
    if not found or (found["base"] == "?" and (kind not in (_DAY, _WEEKDAY) or found["step"])):
        if _HASHED.fullmatch(item):
            raise _wrong(f"{kind.name} {shown(item)}: H and R are not supported; write the value, or use jitter")
        raise _wrong(f"{kind.name} {shown(item)} is not understood")
    if found["low"] is None:
        values = kind.all
    else:
        low = _number(kind, found["low"])
        if found["high"] and found["high"] != found["low"]:
            values = _range(kind, low, _number(kind, found["high"], ends_week=True))
        elif found["step"] and not found["high"]:
            values = _range(kind, low, kind.high)
        else:
            values = (low,)
    if found["step"] is None:
        return values
    step = int(found["step"])
    if not 1 <= step <= kind.size:
        raise _wrong(f"{kind.name} {shown(item)}: the step must be from 1 to {kind.size}")
    return values[::step]


def _number(kind: _Kind, text: str, *, ends_week: bool = False) -> int:
    """One value of a field, by number or name; Sunday is 0 and 7, and 7 is kept only as the end of a range."""
    if text.isdigit():
        high = 7 if kind is _WEEKDAY else kind.high
        if not kind.low <= int(text) <= high:
            raise _wrong(f"{kind.name} {int(text)} is outside {kind.low}–{high}")
        value = int(text)
        return value if ends_week or kind is not _WEEKDAY else value % 7
    return _expand(kind, text)[0]


def _range(kind: _Kind, low: int, high: int) -> tuple[int, ...]:
    """From low to high inclusive; over the end of the field and on from its start when high is below low."""
    if low == high:  # croniter reads 5-5 as the whole field
        return (low,)
    values = _expand(kind, f"{low}-{high}")
    return tuple(value for value in values if value >= low) + tuple(value for value in values if value < low)


@lru_cache(maxsize=4096)
def _expand(kind: _Kind, item: str) -> tuple[int, ...]:
    """What croniter reads in one item of one field, in ascending order."""
    words = ["0", "0", "1", "1", "0"]
    words[kind.place] = item
    try:
        values = croniter.expand(" ".join(words))[0][kind.place]
    except (CroniterError, ValueError, KeyError):
        raise _wrong(f"{kind.name} {shown(item)} is not understood") from None
    if values == ["*"]:
        return kind.all
    return tuple(sorted(int(value) for value in values))
