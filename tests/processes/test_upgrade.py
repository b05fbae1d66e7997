"""An upgrade under load: the previous release's API and worker go on working while and after the schema is migrated.

The previous release is the newest tag v*; PGTICK_UPGRADE_FROM names another commit, to try the harness itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.databases import CHECKOUT, Server, migrate
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

TASKS = """
from workers.registry import task

@task("add")
async def add(a: int, b: int) -> int:
    return a + b
"""
POST = """
import sys
from app.api.application import create_app
client = create_app().test_client()
answer = client.post("/jobs", json={"task_id": "add", "parameters": {"a": 1, "b": 2}})
sys.exit(answer.status_code != 201 and answer.text)
"""


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=CHECKOUT, text=True, capture_output=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The code of the previous release, in a folder of its own."""
    release = (
        os.environ.get("PGTICK_UPGRADE_FROM") or git("tag", "--list", "v*", "--sort=-v:refname").partition("\n")[0]
    )
    if not release:
        pytest.skip("there is no release yet: no tag v* to upgrade from")
    folder = tmp_path / "previous"
    archived = tmp_path / "previous.tar"
    assert git("archive", f"--output={archived}", release) == ""
    with tarfile.open(archived) as tar:
        tar.extractall(folder, filter="data")
    (folder / "upgrade_tasks.py").write_text(TASKS)
    return folder


class Old:
    """Runs programs of the previous release, with the libraries of this one."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PGTICK_")}
        self.environment = kept | {
            "DATABASE_URL": dsn,
            "PYTHONPATH": str(folder),
            "PGTICK_TASKS": "upgrade_tasks",
            "PGTICK_DRAIN_S": "5",
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, *arguments], cwd=self.folder, env=self.environment)

    def run(self, *arguments: str) -> None:
        assert self.start(*arguments).wait(timeout=60) == 0


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    with server.database() as dsn:
        yield dsn


def test_the_previous_release_works_while_and_after_the_schema_is_upgraded(previous: Path, database: str) -> None:
    old = Old(previous, database)
    old.run("-m", "alembic", "upgrade", "head")
    worker = old.start("-m", "workers")
    try:
        with psycopg.connect(database, autocommit=True) as connection:
            known = "select from pgtick.tasks where task_id = 'add'"
            eventually(lambda: connection.execute(known).fetchone() is not None, timeout=30)

            def create(count: int) -> None:
                connection.execute(
                    "select pgtick.create_job('add', parameters => '{\"a\": 1, \"b\": 2}') from generate_series(1, %s)",
                    [count],
                )

            def completed(count: int) -> bool:
                row = connection.execute(
                    "select count(*) from pgtick.executions where status = 'COMPLETED' and result = '3'"
                ).fetchone()
                return row == (count,)

            create(500)
            migrate(database)
            create(500)
            old.run("-c", POST)
            eventually(lambda: completed(1001), timeout=60)
    finally:
        worker.terminate()
        assert worker.wait(timeout=30) == 0
