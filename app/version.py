"""Which version of pgtick this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the installed package; "0" where it runs without being installed."""
    try:
        return version("pgtick")
    except PackageNotFoundError:
        return "0"
