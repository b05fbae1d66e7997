"""Time zones, from the `tzdata` package only, so that no result depends on the machine it was computed on."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module, resources
from zoneinfo import ZoneInfo

from app.schedule.errors import ScheduleError, shown

# In the data, but not places: `localtime` is whatever the host is set to, `Factory` says "not set up yet".
_NOT_ZONES = frozenset({"localtime", "Factory"})


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every accepted name, as `zoneinfo.available_timezones()` has them on a host without zone files of its own."""
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
    return frozenset(listed) - _NOT_ZONES


def zone(name: object, *, field: str = "schedule.timezone") -> ZoneInfo:
    """The zone of that exact name; ScheduleError naming `field` for anything else.

    Only listed names ever reach a file, so `../../etc/passwd`, a NUL or a directory such as `America` cannot.
    """
    if not isinstance(name, str):
        raise ScheduleError(field, "timezone must be a string such as Europe/Berlin")
    if name not in zone_names():
        hint = _differs_in_case().get(name.casefold())
        rule = f"did you mean {hint}?" if hint else "use a name of the IANA database, such as Europe/Berlin or UTC"
        raise ScheduleError(field, f"{shown(name)} is not a time zone; {rule}")
    return _load(name)


@cache
def _load(name: str) -> ZoneInfo:
    # ZoneInfo(name) would prefer the host's files; reset_tzpath would change that for the whole process.
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@lru_cache(maxsize=1)
def _differs_in_case() -> dict[str, str]:
    return {name.casefold(): name for name in zone_names()}


def tzdata_version() -> str:
    """The release of the zone data in use, such as `2025b`; stored next times are recomputed when it changes."""
    return str(import_module("tzdata").IANA_VERSION)
