"""A server with its data in a folder: made, started, stopped, copied to a standby, destroyed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from app.embedded import ClusterError
from app.embedded.account import Account
from app.embedded.folders import temporary_parent, usable_folder
from app.embedded.lock import Lock
from app.embedded.ports import free_port, is_free
from app.embedded.programs import find_bindir

SUPERUSER = "pgtick"
PREFERRED_PORT = 54329
START_TIMEOUT_S = 300  # recovery after a crash may have much to replay
STOP_TIMEOUT_S = 60

DEFAULT_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a path of 107 bytes at most, and another permission to get right
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",  # short statements over many partitions: compiling them costs more than running them
    "max_locks_per_transaction": "512",  # hundreds of partitions, each with its indexes
}
UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Cluster:
    """One PostgreSQL server with its data in a folder.

    `folder` holds `port` and `password`, the server's `data`, and, where root's server user cannot enter the folder,
    only `location`: the path of the place that is used instead.
    """

    def __init__(self, folder: Path, account: Account, settings: Mapping[str, str], *, fsync: bool, port: int) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.account = account
        self.fsync = fsync
        self.settings = DEFAULT_SETTINGS | ({} if fsync else UNSAFE_BUT_FAST) | dict(settings)
        self._preferred_port = port
        self._lock: Lock | None = None
        self.bindir = find_bindir(account, major=self._data_version())

    @classmethod
    def at(
        cls, folder: Path, *, fsync: bool = True, settings: Mapping[str, str] | None = None, port: int = PREFERRED_PORT
    ) -> Cluster:
        """The cluster in `folder`, not yet started. Port 0 means any free one; once chosen, it is kept."""
        account = Account.for_server()
        place = usable_folder(folder.absolute(), account)
        return cls(place, account, settings or {}, fsync=fsync, port=port)

    @classmethod
    def temporary(cls, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> Cluster:
        """A cluster in a temporary folder, to be `destroy`ed; what killed processes left is cleared away first."""
        account = Account.for_server()
        parent = temporary_parent(account)
        for left in parent.glob("pgtick-cluster-*"):
            _destroy_if_abandoned(left, account)
        folder = Path(tempfile.mkdtemp(prefix="pgtick-cluster-", dir=parent))
        if account.uid is not None:
            folder.chmod(0o755)
        cluster = cls(folder, account, settings or {}, fsync=fsync, port=0)
        cluster._lock = Lock.take(folder / "owner.lock")
        return cluster

    @classmethod
    def standby_of(
        cls, primary: Cluster, folder: Path, *, settings: Mapping[str, str] | None = None, slot: str | None = None
    ) -> Cluster:
        """A streaming standby copied from a running primary, not yet started; with `slot`, one is made and used."""
        standby = cls.at(folder, fsync=primary.fsync, settings=settings, port=0)
        standby._write("password", primary.password)
        standby._make_data_folder()
        where = ["--host=127.0.0.1", f"--port={primary.port}", f"--username={SUPERUSER}"]
        with_slot = ["--create-slot", f"--slot={slot}"] if slot else []
        how = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", f"--pgdata={standby.data}"]
        standby.run("pg_basebackup", *where, *with_slot, *how, env={"PGPASSWORD": primary.password})
        return standby

    @property
    def password(self) -> str:
        return (self.folder / "password").read_text().strip()

    @property
    def port(self) -> int:
        return int((self.folder / "port").read_text())

    @property
    def postmaster_pid(self) -> int | None:
        """The server's process id while it runs.

        The recorded id alone proves nothing: after a kill -9 or a reboot it may be another process's.
        """
        try:
            pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        except (OSError, ValueError, IndexError):
            return None
        return pid if str(self.data) in _command_of(pid) else None

    @property
    def log(self) -> Path:
        return self.data / "server.log"

    def dsn(self, dbname: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}:{self.password}@127.0.0.1:{self.port}/{dbname}"

    def is_running(self) -> bool:
        return self.postmaster_pid is not None

    def start(self) -> Cluster:
        """Make the cluster if it is new, and start its server; one that a killed process left running is restarted."""
        if self._data_version() is None:
            self._initdb()
        if self.is_running():
            self.stop()
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        port = self._recorded_port() or self._preferred_port
        for _ in range(20):
            if not is_free(port):
                port = free_port(near=self._preferred_port)
            failure = self._try_start(port)
            if failure is None:
                self._write("port", str(port))
                return self
            # The children of a server that was killed need a moment to notice,
            # and a port may be taken between our look and the server's bind.
            if (
                "pre-existing shared memory block" not in failure
                and "could not create any TCP/IP sockets" not in failure
            ):
                break
            time.sleep(0.5)
        raise ClusterError(f"PostgreSQL did not start from {self.data}:\n{failure}")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server if it runs; `mode` is smart, fast or immediate, and becomes immediate after a minute."""
        if not self.is_running():
            return
        stopped = self._pg_ctl("stop", "--wait", f"--timeout={STOP_TIMEOUT_S}", f"--mode={mode}")
        if stopped.returncode != 0 and self.is_running():
            stopped = self._pg_ctl("stop", "--wait", f"--timeout={STOP_TIMEOUT_S}", "--mode=immediate")
        if stopped.returncode != 0 and self.is_running():
            raise ClusterError(f"PostgreSQL in {self.data} does not stop:\n{stopped.stdout}")

    def restart(self, mode: str = "fast") -> Cluster:
        self.stop(mode)
        return self.start()

    def promote(self) -> None:
        """Make a standby the primary; returns once it accepts writes."""
        self.run("pg_ctl", "promote", f"--pgdata={self.data}", "--wait")

    def run(self, program: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Run one of PostgreSQL's programs as the server's user; returns what it printed or raises ClusterError."""
        done = self.account.run([str(self.bindir / program), *arguments], env=env)
        if done.returncode != 0:
            raise ClusterError(f"{program} failed with exit code {done.returncode}:\n{done.stdout}")
        return done.stdout

    def destroy(self) -> None:
        """Stop the server and delete its folder."""
        self.stop("immediate")
        if self._lock:
            self._lock.release()
        shutil.rmtree(self.folder)

    def _initdb(self) -> None:
        self._write("password", secrets.token_hex(16))
        self._make_data_folder()
        # A copy that the server's user may read, in a folder that it cannot write.
        secret = self._write("initdb-password", self.password)
        self.account.own(secret)
        # The C locale exists everywhere and sorts by code point; ids and names here are compared, not collated.
        character_set = ["--encoding=UTF8", "--locale=C"]
        access = ["--auth=scram-sha-256", f"--username={SUPERUSER}", f"--pwfile={secret}"]
        speed = [] if self.fsync else ["--no-sync"]
        try:
            self.run("initdb", "--no-instructions", *character_set, *access, *speed, f"--pgdata={self.data}")
        except ClusterError:
            shutil.rmtree(self.data)
            raise
        finally:
            secret.unlink()

    def _make_data_folder(self) -> None:
        self.data.mkdir(mode=0o700, exist_ok=True)
        self.account.own(self.data)

    def _try_start(self, port: int) -> str | None:
        """None once the server accepts connections; otherwise what it said."""
        seen = self.log.stat().st_size if self.log.exists() else 0
        settings = self.settings | {"port": str(port)}
        options = " ".join(shlex.quote(f"--{name}={value}") for name, value in settings.items())
        wait = ["--wait", f"--timeout={START_TIMEOUT_S}"]
        started = self._pg_ctl("start", *wait, f"--log={self.log}", f"--options={options}")
        if started.returncode == 0:
            return None
        said = self.log.read_text(errors="replace")[seen:] if self.log.exists() else ""
        return f"{started.stdout}\n{said[-4000:]}"

    def _pg_ctl(self, action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.account.run([str(self.bindir / "pg_ctl"), action, f"--pgdata={self.data}", *arguments])

    def _data_version(self) -> int | None:
        """The major version of the data; None when there is none yet, or an initdb did not get to its end."""
        try:
            version = (self.data / "PG_VERSION").read_text()
        except OSError:
            return None
        if (self.folder / "initdb-password").exists():
            shutil.rmtree(self.data)
            return None
        return int(version)

    def _recorded_port(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return self.port
        return None

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text + "\n")
        return path


def _destroy_if_abandoned(folder: Path, account: Account) -> None:
    """Remove a temporary cluster of ours whose process was killed; its lock is free then."""
    if not (folder / "owner.lock").exists() or folder.stat().st_uid != os.geteuid():
        return
    lock = Lock.take(folder / "owner.lock")
    if lock is None:
        return
    cluster = Cluster(folder, account, {}, fsync=False, port=0)
    cluster._lock = lock
    cluster.destroy()


def _command_of(pid: int) -> str:
    """The command line of a process; empty when there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    if sys.platform == "linux":
        return ""
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
