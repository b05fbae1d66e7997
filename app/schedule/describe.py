"""Cron in plain English: "at 10:00 every day", "every 5 minutes", "at 00:00 on the last day of the month"."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product

from app.schedule.fields import LAST, Fields

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", LAST: "last"}
_TIMES_LISTED = 6


def describe(fields: Fields) -> str:
    """One sentence without a full stop. The zone is not part of it."""
    days, months = _days(fields), _months(fields)
    time = _time(fields)
    if not days and not months:
        return f"{time} every day" if time.startswith("at ") and " of every " not in time else time
    return " ".join(part for part in (time, days or "every day", months) if part)


def _time(fields: Fields) -> str:
    seconds, minutes, hours = fields.seconds, fields.minutes, fields.hours
    if len(seconds) > 1 or len(minutes) > 1 or len(hours) == 24:
        often = _often(seconds, minutes)
        if len(hours) == 24:
            return often
        step = _even_step(hours, 24)
        if step and step > 1 and len(minutes) == 1 and len(seconds) == 1:
            return often.replace("every hour", f"every {step} hours")
        if len(minutes) * len(seconds) * len(hours) > _TIMES_LISTED:
            return f"{often} {_during(hours)}"
    elif (step := _even_step(hours, 24)) and step > 1 and len(hours) > 2:
        if (minutes, seconds) == ((0,), (0,)):
            return f"every {step} hours"
        return f"{_often(seconds, minutes).removesuffix(' of every hour')} of every {_ordinal(step)} hour"
    times = [_clock(*time) for time in product(hours, minutes, seconds)]
    if len(times) > _TIMES_LISTED:
        return f"{_often(seconds, minutes)} {_during(hours)}"
    return f"at {_list(times)}"


def _often(seconds: Sequence[int], minutes: Sequence[int]) -> str:
    """How it goes within an hour."""
    minute_step = _even_step(minutes, 60)
    if len(seconds) > 1:
        second_step = _even_step(seconds, 60)
        within = _every(second_step, "second") if second_step else f"at seconds {_runs(seconds)}"
        if len(minutes) == 60:
            return within if second_step else f"{within} of every minute"
        return f"{within} of {_counted('minute', minutes)} of every hour"
    second = f" and {seconds[0]} second{'s' if seconds[0] > 1 else ''}" if seconds[0] else ""
    if len(minutes) == 60:
        return f"at second {seconds[0]} of every minute" if second else "every minute"
    if minute_step and minute_step > 1 and len(minutes) > 1:
        return (
            f"at second {seconds[0]} of every {_ordinal(minute_step)} minute"
            if second
            else _every(minute_step, "minute")
        )
    if list(minutes) == [0] and not second:
        return "every hour"
    return f"at {_counted('minute', minutes)}{second} of every hour"


def _during(hours: Sequence[int]) -> str:
    if list(hours) == list(range(hours[0], hours[-1] + 1)):
        return f"from {hours[0]:02}:00 to {hours[-1]:02}:59"
    step = _even_step(hours, 24)
    if step:
        return f"of every {_ordinal(step)} hour"
    return f"during the {'hour' if len(hours) == 1 else 'hours'} {_list([f'{hour:02}' for hour in hours])}"


def _days(fields: Fields) -> str:
    """`on …`, or nothing for every day."""
    of_month, of_week = _days_of_month(fields), _days_of_week(fields)
    if of_month and of_week:
        return f"on {of_month}, if it is {of_week}" if fields.both_days else f"on {of_month} and on {of_week}"
    if fields.both_days:
        return f"on {of_month or of_week}" if of_month or of_week else ""
    return ""  # one of the two names every day


def _days_of_month(fields: Fields) -> str:
    plain = sorted(fields.days - {LAST})
    if len(plain) == 31:
        return ""
    parts = []
    if plain:
        parts.append(_counted("day", plain))
    if LAST in fields.days:
        parts.append("the last day")
    for day in sorted(fields.nearest, key=lambda day: day % 32):
        parts.append("the last weekday" if day == LAST else f"the weekday nearest day {day}")
    return f"{_list(parts)} of the month"


def _days_of_week(fields: Fields) -> str:
    days = fields.weekdays
    if len(days) == 7:
        return ""
    parts = []
    if days:
        from_monday = sorted(days, key=lambda day: (day - 1) % 7)
        if len(days) > 2 and (from_monday[-1] - from_monday[0]) % 7 == len(days) - 1:
            parts.append(f"{_WEEKDAYS[from_monday[0]]} to {_WEEKDAYS[from_monday[-1]]}")
        else:
            parts.append(_list([_WEEKDAYS[day] for day in from_monday]))
    for day, which in sorted(fields.nths, key=lambda nth: (nth[1] % 7, nth[0])):
        parts.append(f"the {_ORDINALS[which]} {_WEEKDAYS[day]} of the month")
    return _list(parts)


def _months(fields: Fields) -> str:
    if len(fields.months) == 12:
        return ""
    return f"in {_list([_MONTHS[month - 1] for month in sorted(fields.months)])}"


def _even_step(values: Collection[int], size: int) -> int | None:
    """The step of `*/n` when it goes into the hour or day without a rest; None for anything else."""
    step = size // len(values)
    return step if step * len(values) == size and sorted(values) == list(range(0, size, step)) else None


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _counted(unit: str, values: Sequence[int]) -> str:
    return f"{unit} {values[0]}" if len(values) == 1 else f"{unit}s {_runs(values)}"


def _runs(values: Sequence[int]) -> str:
    """`1–5, 10 and 20`: neighbours as ranges."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return _list([f"{run[0]}–{run[-1]}" if len(run) > 2 else _list([str(value) for value in run]) for run in runs])


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def _clock(hour: int, minute: int, second: int) -> str:
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"
