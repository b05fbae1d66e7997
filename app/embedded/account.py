"""The OS user that the server runs as: PostgreSQL refuses to run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.embedded import ClusterError


@dataclass(frozen=True)
class Account:
    """The OS user that the server runs as; None for the user we are."""

    uid: int | None = None
    gid: int | None = None

    @classmethod
    def for_server(cls) -> Account:
        """Ourselves, or for root the first of the users `postgres` and `nobody` that this machine has."""
        if os.geteuid() != 0:
            return cls()
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(entry.pw_uid, entry.pw_gid)
        raise ClusterError("PostgreSQL does not run as root, and this machine has no user `postgres` or `nobody`.")

    def run(
        self, command: list[str], *, cwd: Path | str = "/", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this user, without our PG* variables; returns its exit code and output."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return subprocess.run(
            command,
            cwd=cwd,
            env=clean | {"LC_ALL": "C"} | dict(env or {}),
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            # A group of its own: Ctrl-C at the terminal is ours to handle, and must not break off an initdb halfway.
            process_group=0,
        )

    def can(self, test: str, path: Path) -> bool:
        """Whether this user passes a `test` of the shell: -x to enter a folder or run a file, -r to read."""
        return self.run(["/bin/sh", "-c", f'test {test} "$1"', "sh", str(path)]).returncode == 0

    def own(self, path: Path) -> None:
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)
