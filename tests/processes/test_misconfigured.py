"""Programs that are given settings that cannot work say so in a line each, and end with a status for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.databases import CHECKOUT

PROGRAMS = {
    "api": ["-m", "gunicorn", "--config", "python:app.gunicorn_conf", "app.wsgi:app"],
    "worker": ["-m", "workers"],
    "cli": ["-c", "from app.cli import main; main()", "jobs", "list"],
}

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "settings",
    [
        {"DATABASE_URL": "mysql://ann:s3cret@db/shop"},
        {"DATABASE_URL": "postgresql://ann:s3cret@db/shop", "PORT": "99999", "PGTICK_LEASE_S": "nan"},
    ],
    ids=["address", "numbers"],
)
def test_what_is_wrong_is_said_without_passwords(program: str, settings: dict[str, str]) -> None:
    ended = started(program, settings)
    assert ended.returncode == 78, ended.stderr
    said = ended.stderr + ended.stdout
    assert {line.partition(":")[0] for line in said.splitlines()} <= {*settings, "PGTICK_RENEW_S"}
    assert "s3cret" not in said
    assert "Traceback" not in said


def test_a_module_of_tasks_that_is_not_there_is_named_in_a_line() -> None:
    ended = started("worker", {"DATABASE_URL": NOWHERE, "PGTICK_TASKS": "workers.tasks.exmples"})
    assert ended.returncode == 78, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line == f"PGTICK_TASKS: there is no module workers.tasks.exmples: neither in {CHECKOUT} nor installed"


@pytest.mark.parametrize("program", ["api", "worker"])
def test_variables_that_are_no_settings_are_told_at_the_start(program: str) -> None:
    refused = {"api": {"PGTICK_HOST": "0.0.0.0"}, "worker": {"PGTICK_TASKS": "no_such_module"}}
    ended = started(program, {"DATABASE_URL": NOWHERE, "PGTICK_TASK": "shop.tasks", **refused[program]})
    assert ended.returncode == 78, ended.stderr
    assert "did you mean PGTICK_TASKS?" in ended.stderr


def started(program: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PGTICK_")}
    return subprocess.run(
        [sys.executable, *PROGRAMS[program]],
        cwd=CHECKOUT,
        env=clean | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
