"""Schedules with real processes: outages, planners that are killed, and runs that are longer than their period."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from datetime import timedelta
from itertools import pairwise, product
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from tests.support.databases import CHECKOUT
from tests.support.processes import Fleet, terminate_backends
from tests.support.waiting import eventually

PLANNERS = 10
JOBS = 100
SECONDS = int(os.environ.get("PGTICK_TEST_PLANNING_S", "5"))
"""How long planners are killed for; 120 for the long version."""
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
AWAY = (timedelta(minutes=10), timedelta(hours=3), timedelta(days=3))


def post(
    fleet: Fleet, schedule: str, parameters: dict[str, Any] | None = None, task: str = "quick", **policies: Any
) -> UUID:
    return fleet.post(task, schedule, parameters, policies=Jsonb(policies))


def test_after_an_outage_each_job_goes_on_as_its_policy_says(fleet: Fleet) -> None:
    worker = fleet.start()
    # Not just before a minute, so that nothing comes due while the outage is made up.
    eventually(lambda: time.time() % 60 < 45, 20)
    started = fleet.value("select date_trunc('minute', now())")
    jobs: dict[tuple[timedelta, timedelta, str], UUID] = {}
    daily_at = {away: started - min(away / 2, timedelta(minutes=20)) for away in AWAY}
    for away, missed in product(AWAY, ("latest", "all", "skip")):
        daily = f"{daily_at[away].minute} {daily_at[away].hour} * * *"
        for period, expression in ((MINUTE, "* * * * *"), (DAY, daily)):
            jobs[away, period, missed] = post(fleet, expression, missed=missed, overlap="allow")
    fleet.eventually("select count(*) = 9 from pgtick.pending_executions")
    worker.kill()
    terminate_backends(fleet.connection)
    # As if all of it had happened so much earlier: also what was pending for the next minute.
    fleet.connection.execute("select pgtick.ensure_partitions(since => now() - %s)", [max(AWAY) + timedelta(hours=1)])
    for (away, period, _), job_id in jobs.items():
        times = {"job_id": job_id, "away": away if period == MINUTE else max(DAY, timedelta(days=away.days))}
        fleet.connection.execute(
            "update pgtick.schedules set next_run_at = next_run_at - %(away)s, anchor_at = anchor_at - %(away)s,"
            " planned_through = planned_through - %(away)s where job_id = %(job_id)s",
            times,
        )
        fleet.connection.execute(
            "update pgtick.pending_executions set scheduled_at = scheduled_at - %(away)s, due_at = due_at - %(away)s,"
            " expires_at = expires_at - %(away)s where job_id = %(job_id)s",
            times,
        )
    fleet.start()
    fleet.eventually("select count(*) = %s from pgtick.schedules where next_run_at > now()", [len(jobs)])
    # Asked at one moment: a busy worker may hand back what it has claimed.
    fleet.eventually(
        "select not exists (select from pgtick.pending_executions where due_at < now())"
        " and not exists (select from pgtick.running_executions)"
    )
    for (away, period, missed), job_id in jobs.items():
        case = (str(away), str(period), missed)
        runs = fleet.executions(job_id)
        ran = [run["scheduled_at"] for run in runs if run["status"] == "COMPLETED"]
        left_out = sum(run["skipped"] or 1 for run in runs if run["status"] == "SKIPPED")
        assert all(at.second == at.microsecond == 0 for at in ran), "on the grid"
        # Those that came due while the test ran were in time.
        caught_up = [at for at in ran if at <= started]
        in_time = len(ran) - len(caught_up)
        everything = int(away / MINUTE) if period == MINUTE else max(1, away.days)
        if missed == "all":
            assert len(caught_up) == min(everything, 1440 if period == MINUTE else 1), case
        else:
            # The newest minute is hardly late at all, so that skip runs it, too.
            assert len(caught_up) + in_time == (1 if missed == "latest" or period == MINUTE else 0) or in_time, case
        assert len(ran) + left_out >= everything, case


def test_many_planners_that_are_killed_make_each_occurrence_once(dsn: str, connection: psycopg.Connection[Any]) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('quick', 'x')")
    for _ in range(JOBS):
        connection.execute("select pgtick.create_job('quick', '* * * * * *')")
    environment = os.environ | {"DATABASE_URL": dsn, "PGTICK_HORIZON_S": "2", "PGTICK_POLL_S": "0.2"}
    start = [sys.executable, "-m", "tests.support.planner"]
    planners = [subprocess.Popen(start, cwd=CHECKOUT, env=environment) for _ in range(PLANNERS)]
    try:
        planned = "select count(*) = %s from pgtick.schedules where planned_through is not null"
        eventually(lambda: (connection.execute(planned, [JOBS]).fetchone() or [False])[0], 30)
        began = (connection.execute("select now()").fetchone() or [None])[0]
        for _ in range(SECONDS):
            time.sleep(1)
            victim = random.randrange(PLANNERS)
            planners[victim].kill()
            planners[victim].wait()
            planners[victim] = subprocess.Popen(start, cwd=CHECKOUT, env=environment)
        horizon = "select count(*) = %s from pgtick.schedules where planned_through > now()"
        eventually(lambda: (connection.execute(horizon, [JOBS]).fetchone() or [False])[0], 30)
    finally:
        for planner in planners:
            planner.kill()
            planner.wait()
    rows = connection.execute(
        "select job_id, count(*), count(distinct scheduled_at), min(scheduled_at), max(scheduled_at),"
        " bool_and(scheduled_at = date_trunc('second', scheduled_at)) from pgtick.pending_executions group by job_id"
    ).fetchall()
    assert len(rows) == JOBS
    for job_id, made, distinct, oldest, newest, on_grid in rows:
        assert made == distinct, f"{job_id} has an occurrence twice"
        assert made == (newest - oldest) / timedelta(seconds=1) + 1, f"{job_id} has a hole"
        assert on_grid
        assert newest > began + timedelta(seconds=SECONDS)
    assert connection.execute("select count(*) from pgtick.finished_executions").fetchone() == (0,), "none was missed"


def test_runs_longer_than_their_period_follow_their_policy_also_after_a_crash(fleet: Fleet) -> None:
    worker = fleet.start(claim_ahead_s=0.5)
    overlaps = ("skip", "queue_one", "cancel_running")
    jobs = {overlap: post(fleet, "* * * * * *", {"seconds": 1.6}, "nap", overlap=overlap) for overlap in overlaps}
    for job_id in jobs.values():
        fleet.until_started(job_id, 3)
    worker.kill()
    before = {overlap: len(fleet.ledger.starts(job_id)) for overlap, job_id in jobs.items()}
    killed_at = time.monotonic()
    fleet.start()
    ready_at = time.monotonic()  # a worker's start takes as long as the machine is busy
    for overlap, job_id in jobs.items():
        fleet.until_started(job_id, before[overlap] + 3, timeout=15)
    assert time.monotonic() - ready_at < 11, "no block beyond the lease"
    for overlap, job_id in jobs.items():
        entries = [e for e in fleet.ledger.entries() if e["execution_id"].endswith(str(job_id)) and e["at"] > killed_at]
        # One that was lost in the crash runs in a process of its own: stopped there, it has no last word.
        query = "select execution_id from pgtick.executions where job_id = %s and status = 'CANCELLED'"
        stopped = {execution_id for (execution_id,) in fleet.connection.execute(query, [job_id]).fetchall()}
        assert all(
            {a["event"], b["event"]} != {"started"} or a["execution_id"] in stopped for a, b in pairwise(entries)
        ), f"{overlap}: two at a time"
        statuses = {run["status"] for run in fleet.executions(job_id)}
        reasons = {run["error"] for run in fleet.executions(job_id) if run["status"] == "SKIPPED"}
        if overlap == "cancel_running":
            assert "CANCELLED" in statuses
        else:
            assert any(f"overlap: {overlap}" in reason for reason in reasons), (overlap, reasons)
    ends = [
        e for e in fleet.ledger.entries() if e["execution_id"].endswith(str(jobs["queue_one"])) and e["at"] > killed_at
    ]
    pauses = [b["at"] - a["at"] for a, b in pairwise(ends) if (a["event"], b["event"]) == ("ended", "started")]
    assert pauses
    assert min(pauses) < 0.5, "the one that waits starts when the run before it ends"
