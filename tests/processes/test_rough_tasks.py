"""What a task does to the process that it runs in, and what becomes of that, costs nobody else anything."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.databases import CHECKOUT
from tests.support.processes import Fleet, Worker, clean_environment, terminate_backends
from tests.support.waiting import eventually

OURS = "pg_stat_activity where datname = current_database() and application_name like 'pgtick %'"
TASKS = "tests.support.tasks,tests.support.rough_tasks"


@pytest.fixture
def freed(tmp_path: Path) -> Iterator[Path]:
    """A file that tasks wait for; it is there after the test at the latest."""
    yield tmp_path / "freed"
    (tmp_path / "freed").touch()


# ── processes that tasks fork ────────────────────────────────────────────────────────────────────────────────────────


# ── what there is of the host ────────────────────────────────────────────────────────────────────────────────────────


def test_results_that_are_too_much_for_one_statement_are_stored(fleet: Fleet) -> None:
    fleet.start(tasks=TASKS, report_s=1)
    create = "pgtick.create_job('large_text', 'now', '{\"characters\": 4000000}')"
    fleet.value(f"select count({create}) from generate_series(1, 280)")
    fleet.eventually("select count(*) = 280 from pgtick.finished_executions where status = 'COMPLETED'", timeout=90)


# ── what a process has one of ────────────────────────────────────────────────────────────────────────────────────────


# ── the nursery of isolated runs ─────────────────────────────────────────────────────────────────────────────────────


# ── the terminal, the lock of a table ────────────────────────────────────────────────────────────────────────────────
