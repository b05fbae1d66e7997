"""A real PgBouncer in transaction mode, before the server of a test."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.embedded.account import Account
from app.store.connections import connect
from tests.support.processes import free_port
from tests.support.waiting import eventually

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")

# Nothing beyond what it takes to run: what PgBouncer does not do by itself, nobody may rely on.
CONFIGURATION = """
[databases]
* = host={host} port={port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = {mode}
max_client_conn = 200
logfile = {folder}/log
"""


@contextmanager
def running_pooler(dsn: str, mode: str = "transaction") -> Iterator[str]:
    """The database of `dsn` as it is reached through a PgBouncer of the test's own, on loopback."""
    if PROGRAM is None:
        pytest.skip("there is no pgbouncer here (on Debian or Ubuntu: apt install pgbouncer)")
    where: dict[str, Any] = conninfo_to_dict(dsn)
    account = Account.for_server()  # PgBouncer does not run as root either
    listen_port = free_port()
    through = make_conninfo(dsn, host="127.0.0.1", port=listen_port, sslmode="disable")
    folder = Path(tempfile.mkdtemp(prefix="pgtick-pooler-"))
    try:
        files = {
            "users": f'"{where["user"]}" "{where.get("password", "")}"\n',
            "ini": CONFIGURATION.format(
                host=where["host"], port=where["port"], listen_port=listen_port, folder=folder, mode=mode
            ),
        }
        for name, text in files.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(text)
            account.own(folder / name)
        account.own(folder)
        process = subprocess.Popen(
            [PROGRAM, "--quiet", str(folder / "ini")],
            cwd="/",
            stdin=subprocess.DEVNULL,
            user=account.uid,
            group=account.gid,
            extra_groups=None if account.uid is None else [],
        )
        try:
            eventually(lambda: _answers(through) or process.poll() is not None, 20, interval=0.1)
            assert process.poll() is None, (folder / "log").read_text()
            yield through
        finally:
            process.kill()
            process.wait()
            print(f"── log of pgbouncer ──\n{(folder / 'log').read_text()}")
    finally:
        shutil.rmtree(folder)


def _answers(dsn: str) -> bool:
    try:
        connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
