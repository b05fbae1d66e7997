"""`pgtick` on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from tests.support import roles
from tests.support.databases import CHECKOUT, Server

PROGRAM = [sys.executable, "-c", "from app.cli import main; main()"]


def pgtick(dsn: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=CHECKOUT,
        env=os.environ | {"DATABASE_URL": dsn} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_migrate_makes_a_database_that_check_finds_good(server: Server) -> None:
    with server.database() as dsn:
        before = pgtick(dsn, "check")
        assert before.returncode == 1
        assert "run pgtick migrate" in before.stdout
        assert pgtick(dsn, "migrate").returncode == 0
        after = pgtick(dsn, "check")
        assert after.returncode == 0, after.stdout + after.stderr
        assert "FAIL" not in after.stdout


def test_check_says_when_partitions_run_out(dsn: str, connection: psycopg.Connection[Any]) -> None:
    connection.execute("update pgtick.partition_windows set until_at = now() + interval '10 minutes'")
    done = pgtick(dsn, "check")
    assert done.returncode == 1
    assert "FAIL  partitions" in done.stdout


def test_check_says_when_the_archive_cannot_be_reached(dsn: str) -> None:
    done = pgtick(dsn, "check", PGTICK_ARCHIVE="nowhere://bucket")
    assert done.returncode == 1
    assert "FAIL  archive     nowhere://bucket" in done.stdout


def test_bad_settings_are_named_and_nothing_runs(dsn: str) -> None:
    done = pgtick(dsn, "check", PGTICK_LEASE_S="soon")
    assert done.returncode == 78
    assert done.stderr.startswith("PGTICK_LEASE_S: ")


@pytest.mark.parametrize("command", [("check",), ("tasks", "list"), ("migrate", "--patience", "0")])
def test_a_database_that_is_away_is_one_line_and_an_exit_status(command: tuple[str, ...]) -> None:
    done = pgtick("postgresql://127.0.0.1:1/none", *command)
    assert done.returncode == 69
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [("jobs", "list"), ("jobs", "add", "t"), ("tasks", "list"), ("executions", "list"), ("tokens", "add", "ann")],
)
def test_a_database_that_is_not_migrated_is_one_line_and_an_exit_status(
    server: Server, command: tuple[str, ...]
) -> None:
    with server.database() as dsn:
        done = pgtick(dsn, *command)
    assert done.returncode == 78
    assert "run pgtick migrate" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_a_role_may_not_is_one_line_and_an_exit_status(owner_dsn: str, server: Server) -> None:
    roles.make(server.admin)
    done = pgtick(roles.address(owner_dsn, "reader"), "jobs", "list")
    assert done.returncode == 77
    assert done.stderr == "the role of DATABASE_URL may not: permission denied for table users\n"


def test_check_warns_of_settings_that_are_misspelt(dsn: str) -> None:
    done = pgtick(dsn, "check", PGTICK_LEESE_S="60")
    assert done.returncode == 0, done.stdout
    assert "warn  settings    PGTICK_LEESE_S is no setting; did you mean PGTICK_LEASE_S?" in done.stdout


GUNICORN = [sys.executable, "-m", "gunicorn", "--config=python:app.gunicorn_conf", "app.wsgi:app"]


@pytest.mark.parametrize("program", [[*PROGRAM, "api"], GUNICORN], ids=["pgtick api", "gunicorn"])
@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"DATABASE_URL": ""}, "DATABASE_URL: is not set"),
        ({"DATABASE_URL": "postgresql://x/", "PGTICK_HOST": "0.0.0.0"}, "PGTICK_HOST: 0.0.0.0 can be reached"),
        ({"DATABASE_URL": "postgresql://x/", "PGTICK_LEASE_S": "soon"}, "PGTICK_LEASE_S: 'soon' is not a number"),
    ],
)
def test_an_api_that_cannot_be_served_does_not_start(
    program: list[str], environment: dict[str, str], said: str
) -> None:
    done = subprocess.run(
        program, cwd=CHECKOUT, env=os.environ | environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 78
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == 1
