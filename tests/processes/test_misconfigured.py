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
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PGTICK_")}
    ended = subprocess.run(
        [sys.executable, *PROGRAMS[program]],
        cwd=CHECKOUT,
        env=clean | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 78, ended.stderr
    said = ended.stderr + ended.stdout
    assert {line.partition(":")[0] for line in said.splitlines()} <= {*settings, "PGTICK_RENEW_S"}
    assert "s3cret" not in said
    assert "Traceback" not in said
