"""What a user chose for one job beyond its time: daylight saving, missed runs, overlap, bounds, spread, exclusions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

from app.schedule.cron import FOLDS, GAPS, Fold, Gap
from app.schedule.dates import parse_storable
from app.schedule.errors import ScheduleError, ScheduleErrors, one_of, shown
from app.schedule.exclusions import check_exclusion

Missed = Literal["latest", "all", "skip"]
Overlap = Literal["allow", "skip", "queue_one", "cancel_running"]
MISSED: tuple[Missed, ...] = ("latest", "all", "skip")
OVERLAPS: tuple[Overlap, ...] = ("allow", "skip", "queue_one", "cancel_running")

_DAY = 86_400
MAX_EXCLUSIONS = 366
MAX_JITTER_S = _DAY
MAX_WINDOW_S = 7 * _DAY
MAX_EXPIRY_S = 3_660 * _DAY
MAX_RUNS = 2**31 - 1
# A one-off job has one occurrence: only what concerns that one applies.
_FOR_ONE_OFFS = frozenset({"overlap", "jitter_s", "expires_after_s"})


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The policies of one job; seconds are seconds, instants are in UTC. `from_dict` validates, this does not."""

    gap: Gap = "run_at_transition"
    """A time of day that the clock jumps over: run at the jump, or `skip`."""
    fold: Fold = "first"
    """A time of day that the clock shows twice: run at the `first`, the `second`, or `both`."""
    missed: Missed = "latest"
    """Occurrences missed while nothing planned them: run the `latest`, `all` within the window, or none (`skip`)."""
    missed_window_s: float = _DAY
    """How far back `missed: all` catches up."""
    overlap: Overlap = "skip"
    """An occurrence due while an earlier one of the job still runs. `allow` is the default of one-off jobs."""
    start_at: datetime | None = None
    """No occurrence is before it."""
    end_at: datetime | None = None
    """No occurrence is after it; one exactly at it runs."""
    max_runs: int | None = None
    """The schedule ends after so many planned starts; skipped occurrences do not count."""
    jitter_s: float = 0
    """Each occurrence starts up to so much later, by an amount that is fixed for that job and occurrence."""
    exclude: tuple[str, ...] = ()
    """Dates and cron expressions, in the job's zone, at which no occurrence is."""
    expires_after_s: float | None = None
    """Not started so long after it was due: skipped."""
    recurring: bool = True
    """Not a policy: which defaults apply."""

    @classmethod
    def defaults(cls, *, recurring: bool) -> Policies:
        return _RECURRING if recurring else _ONE_OFF

    @classmethod
    def from_dict(cls, given: object, recurring: bool) -> Policies:
        """Validates what a request or a row holds; null means the default.

        Raises ScheduleErrors with one error for each fault, named `policies.<name>`.
        """
        defaults = cls.defaults(recurring=recurring)
        if given is None:
            return defaults
        if not isinstance(given, Mapping):
            raise ScheduleErrors([ScheduleError("policies", "policies must be an object")])
        errors: list[ScheduleError] = []
        values: dict[str, Any] = {}
        for name, value in given.items():
            field = f"policies.{name}" if isinstance(name, str) and name.isidentifier() else f"policies.{shown(name)}"
            check = _CHECKS.get(name)
            if check is None:
                errors.append(ScheduleError(field[:80], f"there is no such policy; there are {', '.join(_CHECKS)}"))
            elif value is not None:
                try:
                    values[name] = check(value, field)
                except ScheduleError as error:
                    errors.append(error)
        made = replace(defaults, **values)
        errors += _relations(made, defaults)
        if errors:
            raise ScheduleErrors(errors)
        return defaults if made == defaults else made

    def to_dict(self) -> dict[str, object] | None:
        """What differs from the defaults, as JSON has it; None when nothing does, so that most rows store NULL."""
        defaults = Policies.defaults(recurring=self.recurring)
        changed: dict[str, object] = {}
        for name in _CHECKS:
            value = getattr(self, name)
            if value == getattr(defaults, name):
                continue
            if isinstance(value, datetime):
                value = value.astimezone(UTC).isoformat().replace("+00:00", "Z")
            changed[name] = list(value) if isinstance(value, tuple) else value
        return changed or None

    def full_dict(self) -> dict[str, object]:
        """Every policy with its value, defaults too, as the API shows them."""
        changed = self.to_dict() or {}
        shown_as = {field.name: field.default for field in fields(Policies) if field.name != "recurring"}
        return {**shown_as, "exclude": [], "overlap": self.overlap, **changed}


_RECURRING = Policies()
_ONE_OFF = Policies(overlap="allow", recurring=False)


def _relations(made: Policies, defaults: Policies) -> list[ScheduleError]:
    errors = []
    if made.start_at and made.end_at and made.end_at < made.start_at:
        errors.append(ScheduleError("policies.end_at", "end_at is before start_at"))
    if not made.recurring:
        errors += [
            ScheduleError(f"policies.{name}", "applies to recurring jobs only")
            for name in _CHECKS
            if name not in _FOR_ONE_OFFS and getattr(made, name) != getattr(defaults, name)
        ]
    return errors


def _one_of(known: tuple[str, ...]) -> Callable[[object, str], str]:
    return lambda value, field: one_of(value, known, field)


def _seconds(low: float, high: float) -> Callable[[object, str], float]:
    def check(value: object, field: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ScheduleError(field, f"must be a number of seconds from {low} to {high}")
        if not low <= value <= high:
            raise ScheduleError(field, f"{shown(value)} is not from {low} to {high} seconds")
        return int(value) if value == int(value) else value

    return check


def _runs(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RUNS:
        raise ScheduleError(field, f"must be a whole number from 1 to {MAX_RUNS}")
    return value


def _exclude(value: object, field: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ScheduleError(field, "must be a list of dates such as 2026-12-25 and cron expressions")
    if len(value) > MAX_EXCLUSIONS:
        raise ScheduleError(field, f"has {len(value)} entries; at most {MAX_EXCLUSIONS} are allowed")
    return tuple(dict.fromkeys(check_exclusion(entry, field, place) for place, entry in enumerate(value)))


_CHECKS: dict[str, Callable[[object, str], object]] = {
    "gap": _one_of(GAPS),
    "fold": _one_of(FOLDS),
    "missed": _one_of(MISSED),
    "missed_window_s": _seconds(1, MAX_WINDOW_S),
    "overlap": _one_of(OVERLAPS),
    "start_at": parse_storable,
    "end_at": parse_storable,
    "max_runs": _runs,
    "jitter_s": _seconds(0, MAX_JITTER_S),
    "exclude": _exclude,
    "expires_after_s": _seconds(1, MAX_EXPIRY_S),
}
