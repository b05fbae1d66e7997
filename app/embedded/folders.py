"""Folders that the server's user can enter, also where we are root and it is another."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from app.embedded import ClusterError
from app.embedded.account import Account


def usable_folder(folder: Path, account: Account) -> Path:
    """`folder`, made if need be, or a place of its own under /var/lib where root's server user cannot enter it."""
    folder.mkdir(parents=True, exist_ok=True)
    if account.can("-x", folder):
        return folder
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
    place = root_only_parent() / f"pgtick-data-{name}"
    place.mkdir(mode=0o755, exist_ok=True)
    place.chmod(0o755)  # mkdir's mode is subject to the umask
    (place / "belongs-to").write_text(f"{folder}\n")
    (folder / "location").write_text(f"{place}\n")
    return place


def root_only_parent() -> Path:
    """A system folder that everyone may enter and only root may write, so nobody can put something in our place."""
    for path in (Path("/var/lib"), Path("/var/db")):
        if path.is_dir():
            return path
    raise ClusterError("This machine has neither /var/lib nor /var/db to keep PostgreSQL's data in.")


def temporary_parent(account: Account) -> Path:
    for path in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if account.can("-x", Path(path)):
            return Path(path)
    raise ClusterError("No folder for temporary files that the server's user can enter; set TMPDIR to one.")
