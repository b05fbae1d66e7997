"""`pgtick` on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import psycopg

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


def test_a_database_that_is_away_is_one_line_and_an_exit_status() -> None:
    done = pgtick("postgresql://127.0.0.1:1/none", "check")
    assert done.returncode == 69
    assert "Traceback" not in done.stderr
