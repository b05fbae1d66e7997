"""`make psql` and `make shell`: programs in the foreground, on the database of this checkout."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from psycopg.conninfo import make_conninfo

from app.embedded import ClusterError
from app.embedded.cluster import Cluster
from app.embedded.programs import find_bindir
from app.local import say
from app.local.database import STATE, database, running
from app.store.connections import parsed


def psql() -> None:
    """Opens psql on the database, which is started for it unless it runs."""
    _in_foreground(_run_psql)


def shell() -> None:
    """Opens a shell for `pgtick …` on the database, which is started for it unless it runs."""
    _in_foreground(_run_shell)


def _in_foreground(program: Callable[[str], int]) -> NoReturn:
    if there := running():
        sys.exit(program(there))
    with database() as address:
        code = program(address)
    sys.exit(code)


def _run_psql(url: str) -> int:
    """psql in the foreground, the password out of sight of `ps`; Ctrl-C is psql's."""
    address = parsed(url)
    secret = {"PGPASSWORD": str(address.pop("password"))} if "password" in address else {}
    program = shutil.which("psql") or str(Cluster.at(STATE / "postgres").bindir / "psql")
    signal.signal(signal.SIGINT, lambda number, frame: None)
    return subprocess.run([program, make_conninfo(**address)], env=os.environ | secret, check=False).returncode


def _run_shell(url: str) -> int:
    """The user's shell with DATABASE_URL set and this environment's `pgtick` on PATH; Ctrl-C is the shell's."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    with contextlib.suppress(ClusterError):
        folders.append(str(find_bindir()))  # for psql, where none is installed
    path = os.pathsep.join(folders)
    say("A shell with DATABASE_URL set and `pgtick` on PATH; `exit` leaves it")
    signal.signal(signal.SIGINT, lambda number, frame: None)
    environment = os.environ | {"DATABASE_URL": url, "PATH": path}
    return subprocess.run([os.environ.get("SHELL") or "/bin/sh"], env=environment, check=False).returncode
