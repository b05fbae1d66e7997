"""What a task does to the process that it runs in, and what becomes of that, costs nobody else anything."""

from __future__ import annotations

import os
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
from tests.support.processes import HASTY, Fleet, Worker, clean_environment, terminate_backends
from tests.support.waiting import eventually

OURS = "pg_stat_activity where datname = current_database() and application_name like 'pgtick %'"
TASKS = "tests.support.tasks,tests.support.rough_tasks"


def nursery(worker: Worker) -> psutil.Process:
    (found,) = (p for p in psutil.Process(worker.pid).children() if "workers.nursery" in p.cmdline())
    return found


@pytest.fixture
def freed(tmp_path: Path) -> Iterator[Path]:
    """A file that tasks wait for; it is there after the test at the latest."""
    yield tmp_path / "freed"
    (tmp_path / "freed").touch()


# ── processes that tasks fork ────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_task_has_forked_does_not_keep_the_leases_of_a_dead_worker(fleet: Fleet, freed: Path) -> None:
    worker = fleet.start(tasks=TASKS)
    fleet.until(fleet.post("fork", parameters={"seconds": 40}), "COMPLETED")
    job = fleet.post("once_freed", parameters={"path": str(freed)})
    fleet.until_started(job)
    fleet.start(tasks=TASKS)
    worker.kill()
    fleet.until_started(job, times=2, timeout=10)
    assert "Exception ignored" not in worker.log()


def test_nor_its_connections(fleet: Fleet) -> None:
    worker = fleet.start(tasks=TASKS)
    fleet.until(fleet.post("fork", parameters={"seconds": 40}), "COMPLETED")
    worker.kill()
    fleet.eventually(f"select not exists (select from {OURS})", timeout=10)


def test_a_lease_keeper_that_is_not_its_workers_child_any_more_says_that_this_has_died(fleet: Fleet) -> None:
    """Although somebody holds the worker's end of its input open."""
    worker = fleet.start()
    worker.kill()
    keeper = subprocess.Popen(
        [sys.executable, "-m", "workers.lease_keeper", str(worker.pid)],
        cwd=CHECKOUT,
        env=clean_environment(**worker.environment, DATABASE_URL=fleet.dsn),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with keeper:
        assert keeper.stdin is not None
        assert keeper.stderr is not None
        keeper.stdin.write(b'{"worker_id": 1, "state": "RUNNING"}\n')
        keeper.stdin.flush()
        assert keeper.wait(10) == 0
        assert b" worker_died " in keeper.stderr.read()


def test_a_thread_that_a_task_has_forked_goes_no_further(fleet: Fleet) -> None:
    fleet.start(tasks=TASKS)
    pid = fleet.until(fleet.post("fork_and_return"), "COMPLETED")["result"]
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_what_an_isolated_task_has_forked_does_not_speak_for_it(fleet: Fleet) -> None:
    fleet.start(tasks=TASKS)
    failed = fleet.until(fleet.post("fork_and_exit"), "FAILED")
    assert failed["error"] == "process died, exit status 3, without an answer"


# ── what there is of the host ────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_uses_up_all_descriptors_costs_no_lease_and_no_attempt(fleet: Fleet, freed: Path) -> None:
    worker = fleet.start(tasks=TASKS, lease_s=20)
    long = fleet.post("once_freed", parameters={"path": f"{freed}.later"})
    fleet.until_started(long)
    fleet.post("use_up_descriptors", parameters={"path": str(freed)})
    eventually(lambda: Path(f"{freed}.taken").exists() and Path(f"{freed}.taken").read_bytes())
    child = fleet.post("child_nap")
    worker.keeper().kill()
    eventually(lambda: worker.says("loop_failed", loop="leases"))
    eventually(lambda: worker.says("run_unstartable"))
    freed.touch()
    eventually(lambda: worker.says("loop_recovered", loop="leases"))
    Path(f"{freed}.later").touch()
    assert fleet.until(long, "COMPLETED")["losses"] == 0
    assert (done := fleet.until(child, "COMPLETED"))["attempt"] == 1
    assert done["errors"] is None


def test_results_that_are_too_much_for_one_statement_are_stored(fleet: Fleet) -> None:
    fleet.start(tasks=TASKS, report_s=1)
    create = "pgtick.create_job('large_text', 'now', '{\"characters\": 4000000}')"
    fleet.value(f"select count({create}) from generate_series(1, 280)")
    fleet.eventually("select count(*) = 280 from pgtick.finished_executions where status = 'COMPLETED'", timeout=90)


# ── what a process has one of ────────────────────────────────────────────────────────────────────────────────────────


def test_a_default_timeout_of_sockets_is_none_of_ours(fleet: Fleet) -> None:
    fleet.start(tasks=TASKS)
    fleet.until(fleet.post("default_timeout"), "COMPLETED")
    job = fleet.post("large_text_from_a_child", parameters={"characters": 4_000_000})
    assert len(fleet.until(job, "COMPLETED")["result"]) == 4_000_000


def test_connections_go_where_the_environment_said_at_the_start(fleet: Fleet) -> None:
    given = conninfo_to_dict(fleet.dsn)
    around = {f"PG{name.upper()}": given[name] for name in ("host", "port", "user", "password") if name in given}
    fleet.start(f"postgresql:///{given['dbname']}", tasks=TASKS, **around)
    elsewhere = {"PGHOST": "127.0.0.2", "PGUSER": "somebody", "PGPASSWORD": "wrong"}
    fleet.until(fleet.post("set_environment", parameters=elsewhere), "COMPLETED")
    terminate_backends(fleet.connection)
    fleet.until(fleet.post("nap"), "COMPLETED", timeout=10)


def test_a_task_that_ignores_children_does_not_hide_the_end_of_the_lease_keeper(fleet: Fleet) -> None:
    worker = fleet.start(tasks=TASKS, lease_s=20)
    fleet.until(fleet.post("ignore_children"), "COMPLETED")
    worker.keeper().kill()
    eventually(lambda: worker.says("lease_keeper_died"))
    assert fleet.until(fleet.post("nap", parameters={"seconds": 3}), "COMPLETED")["losses"] == 0


# ── the nursery of isolated runs ─────────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_kills_its_parent_harms_no_other(fleet: Fleet) -> None:
    fleet.start(tasks=TASKS)
    neighbour = fleet.post("child_nap", parameters={"seconds": 3}, max_retries=0)
    fleet.until_started(neighbour)
    failed = fleet.until(fleet.post("kill_parent"), "FAILED")
    assert [e["error"] for e in failed["errors"]] == ["process died, signal 9 (SIGKILL)"] * 2
    assert (done := fleet.until(neighbour, "COMPLETED"))["losses"] == 0
    assert len(fleet.ledger.starts(done["job_id"])) == 1


def test_runs_of_a_nursery_that_was_killed_start_again_uncharged(fleet: Fleet) -> None:
    worker = fleet.start()
    jobs = [fleet.post("child_nap", parameters={"seconds": 3}, max_retries=0) for _ in range(2)]
    for job in jobs:
        fleet.until_started(job)
    nursery(worker).kill()
    for job in jobs:
        done = fleet.until(job, "COMPLETED")
        assert (done["attempt"], done["losses"]) == (1, 1)
    assert worker.says("nursery_died")


def test_a_nursery_that_was_stopped_has_a_successor(fleet: Fleet) -> None:
    worker = fleet.start()
    fleet.until(fleet.post("child_nap"), "COMPLETED")
    nursery(worker).suspend()
    fleet.until(fleet.post("child_nap", max_retries=0), "COMPLETED")
    assert worker.says("nursery_hung")


def test_a_run_that_was_given_up_does_not_start_when_its_nursery_goes_on(fleet: Fleet) -> None:
    worker = fleet.start(kill_after_s=0.5)
    fleet.until(fleet.post("child_nap"), "COMPLETED")
    stopped = nursery(worker)
    stopped.suspend()
    job = fleet.post("child_nap", timeout_s=0.5, max_retries=0)
    fleet.until(job, "FAILED")
    stopped.resume()
    fleet.until(fleet.post("child_nap"), "COMPLETED")  # which it is asked for after that
    assert not fleet.ledger.starts(job)


# ── the terminal, the lock of a table ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["2>&1 | true", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed_stop_nothing(fleet: Fleet, how: str) -> None:
    settings = {**HASTY, "PGTICK_TASKS": TASKS, "DATABASE_URL": fleet.dsn}
    shell = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -m workers {how}"],
        cwd=CHECKOUT,
        env=clean_environment(**settings),
        start_new_session=True,
    )
    try:
        fleet.eventually("select exists (select from pgtick.workers)")
        fleet.until(fleet.post("large_text_from_a_child", parameters={"characters": 1}), "COMPLETED")
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_a_terminal_that_is_closed_ends_a_worker_as_a_stop_does(fleet: Fleet) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and a worker leaves it so
    worker = fleet.start()
    signal.signal(signal.SIGHUP, before)
    job = fleet.post("nap", parameters={"seconds": 1.5})
    fleet.until_started(job)
    worker.process.send_signal(signal.SIGHUP)
    worker.keeper().send_signal(signal.SIGHUP)
    assert worker.wait() == 0
    assert fleet.status(job) == "COMPLETED"


def test_connections_that_wait_for_a_table_do_not_add_up(fleet: Fleet) -> None:
    fleet.start()
    count = f"select count(*) from {OURS}"
    with psycopg.connect(fleet.owner) as connection:
        connection.execute("lock table pgtick.running_executions in access exclusive mode")
        until = time.monotonic() + 15
        most = 0
        while time.monotonic() < until:
            most = max(most, fleet.value(count))
            time.sleep(0.2)
    assert most <= 9
    fleet.until(fleet.post("nap"), "COMPLETED", timeout=10)
