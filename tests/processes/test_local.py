"""`make run` comes up, says what to try, and leaves nothing behind when it is stopped, whichever way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support.databases import CHECKOUT, Server, migrate
from tests.support.processes import free_port
from tests.support.waiting import eventually


class Run:
    """One `python -m app.local` on a database of its own."""

    def __init__(self, dsn: str, port: int, log: Path, **environment: str) -> None:
        self.api = f"http://127.0.0.1:{port}"
        self.log = log
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PGTICK_")}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "app.local"],
                cwd=CHECKOUT,
                env=clean | {"DATABASE_URL": dsn, "PORT": str(port)} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def said(self) -> str:
        return self.log.read_text()

    def wait_until_up(self) -> list[psutil.Process]:
        """Waits for the try-next lines; returns the API's and the worker's processes."""
        eventually(lambda: "/jobs?user_id=" in self.said() or self.process.poll() is not None, timeout=60)
        assert self.process.poll() is None, self.said()
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        """Kills whatever is left."""
        if self.process.poll() is None:
            for process in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
                process.kill()
        self.process.wait()


def all_gone(processes: list[psutil.Process]) -> bool:
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def run(server: Server, port: int, tmp_path: Path) -> Iterator[Run]:
    with server.database() as dsn:
        run = Run(dsn, port, tmp_path / "log")
        yield run
        run.kill()


def test_runs_a_first_job_and_stops_cleanly_on_ctrl_c(run: Run) -> None:
    children = run.wait_until_up()
    assert len(children) >= 2
    with urllib.request.urlopen(f"{run.api}/jobs?status=COMPLETED") as answer:
        assert [job["task_id"] for job in json.load(answer)["jobs"]] == ["send_email"]
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(timeout=30) == 0
    assert run.said().endswith("==> Stopped\n")
    assert "Traceback" not in run.said()
    assert all_gone(children)


def test_the_examples_are_there_besides_the_tasks_that_are_named(server: Server, port: int, tmp_path: Path) -> None:
    with server.database() as dsn:
        run = Run(dsn, port, tmp_path / "log", PGTICK_TASKS="tests.support.tasks")
        try:
            run.wait_until_up()
            with urllib.request.urlopen(f"{run.api}/tasks") as answer:
                known = {task["task_id"] for task in json.load(answer)["tasks"]}
        finally:
            run.kill()
    assert {"send_email", "quick"} <= known


def test_comes_up_without_a_first_job_while_its_task_is_paused(server: Server, port: int, tmp_path: Path) -> None:
    with server.database() as dsn:
        migrate(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'm:f')")
            connection.execute("select pgtick.pause_task('send_email')")
            run = Run(dsn, port, tmp_path / "log")
            try:
                run.wait_until_up()
                assert connection.execute("select count(*) from pgtick.jobs").fetchone() == (0,)
            finally:
                run.kill()
    assert "send_email is paused" in run.said()


@pytest.mark.parametrize("program", ["pgtick jobs list", 'psql --command="select * from pgtick.jobs" "$DATABASE_URL"'])
def test_its_shell_knows_the_database_and_the_command_line(dsn: str, program: str) -> None:
    environment = os.environ | {"DATABASE_URL": dsn, "SHELL": "/bin/sh"}
    command = [sys.executable, "-m", "app.local", "shell"]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, input=program, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "task_id" in done.stdout.lower().replace(" ", "_")


def test_says_which_child_died_and_stops_the_others(run: Run) -> None:
    children = run.wait_until_up()
    worker = next(child for child in children if child.cmdline()[-1] == "workers")
    worker.kill()
    assert run.process.wait(timeout=30) == 1
    assert "error: The worker was killed by SIGKILL" in run.said()
    assert all_gone(children)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells children of their parent's death on Linux only")
def test_children_stop_when_it_is_killed(run: Run) -> None:
    children = run.wait_until_up()
    run.process.kill()
    run.process.wait()
    eventually(lambda: all_gone(children), timeout=30)


def test_says_that_the_port_is_taken(port: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", port)):
        run = Run("postgresql://nowhere/", port, tmp_path / "log")
        assert run.process.wait(timeout=30) == 1
    assert f"error: Port {port} cannot be used" in run.said()


def test_ctrl_c_while_it_is_loaded_ends_it_without_a_traceback(run: Run) -> None:
    loading = psutil.Process(run.process.pid)
    eventually(lambda: any("psycopg" in mapped.path for mapped in loading.memory_maps()), interval=0.01)
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(timeout=30) in (-signal.SIGINT, 130)
    assert run.said() == ""
