"""What is wrong with a schedule: the field, and the rule it breaks, fit to be shown to the person who wrote it."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import PgtickError

_SHOWN = 60


class ScheduleError(PgtickError, ValueError):
    """One broken rule. `field` is a dotted path such as `schedule.expression`; `rule` is one sentence."""

    def __init__(self, field: str, rule: str) -> None:
        self.field = field
        self.rule = rule
        super().__init__(f"{field}: {rule}")

    def __reduce__(self) -> tuple[type[ScheduleError], tuple[str, str]]:
        return type(self), (self.field, self.rule)


class ScheduleErrors(PgtickError, ValueError):
    """Every rule that one request breaks, so that a user mends all of them at once."""

    def __init__(self, errors: Sequence[ScheduleError]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(str(error) for error in self.errors))

    def __reduce__(self) -> tuple[type[ScheduleErrors], tuple[list[ScheduleError]]]:
        return type(self), (self.errors,)


def one_of(value: object, known: Sequence[str], field: str) -> str:
    """The value, if it is one of these words. Raises ScheduleError naming `field`."""
    if not isinstance(value, str) or value not in known:
        raise ScheduleError(field, f"{shown(value)} is not one of {', '.join(known)}")
    return value


def shown(value: object) -> str:
    """A user's value for a message: short, one line, and safe to encode whatever was sent."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
