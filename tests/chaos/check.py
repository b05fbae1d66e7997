"""What must be true afterwards, read from the database, the ledger of side effects and the logs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.faults import Fault
from tests.chaos.fleet import LEASE_S

OWN_RECOVERY_S = LEASE_S + 5
"""Executions of a killed worker start again within so long."""
SERVER_RECOVERY_S = {"restart fast": 2.0, "restart immediate": 2.0, "fail over": 5.0}
"""Work goes on so long after the server is back."""
ON_SERVER = set(SERVER_RECOVERY_S)
STARTED = re.compile(r"worker_started worker_id=(\d+)")
LOST = re.compile(r"lease_lost execution_id=\S+ claim_id=(\d+)")
SEEN_LOST = re.compile(r"(?:lease_lost|report_refused) .*?execution_id=(\S+)")


@dataclass
class Run:
    """One start of an execution."""

    at: float
    pid: int
    attempt: int
    worker: str
    claim_id: str
    ended: float | None = None


@dataclass
class Verdict:
    """Faults by kind, and what was broken, in sentences."""

    recovery_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    doubled: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lost: int = 0
    stuck: int = 0
    unexplained: list[str] = field(default_factory=list)
    accepted_late: int = 0
    """Outcomes that were taken from a worker whose claim was no longer its own."""
    waits: list[float] = field(default_factory=list)
    """How long each execution of a killed worker waited for its next run, seconds."""
    broken: list[str] = field(default_factory=list)

    def demand(self, holds: bool, sentence: str) -> None:
        if not holds:
            self.broken.append(sentence)


def read_ledger(path: Path) -> dict[str, list[Run]]:
    """Every execution's runs, in order."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for line in path.read_text().splitlines():
        at, event, _, pid, attempt, worker, claim_id, execution_id = line.split(" ")
        if event == "start":
            runs[execution_id].append(Run(float(at), int(pid), int(attempt), worker, claim_id))
        else:
            for run in reversed(runs[execution_id]):
                if (run.pid, run.attempt) == (int(pid), int(attempt)):
                    run.ended = float(at)
                    break
    return runs


def check(
    connection: psycopg.Connection[Any],
    acknowledged: dict[str, str],
    recurring: list[str],
    runs: dict[str, list[Run]],
    faults: list[Fault],
    logs: list[Path],
    patience: float,
) -> Verdict:
    verdict = Verdict()
    check_states(connection, acknowledged, verdict)
    check_recurring(connection, recurring, verdict)
    check_ledger(connection, runs, faults, logs, verdict)
    check_fence(connection, runs, logs, verdict)
    check_recovery(runs, faults, patience, verdict)
    return verdict


def check_states(connection: psycopg.Connection[Any], acknowledged: dict[str, str], verdict: Verdict) -> None:
    """Invariants 1 to 5: each acknowledged job has one final execution, on time or late but never early."""
    rows = connection.execute(
        "select job_id::text, count(*), min(status), min(task_id), max(attempt) from pgtick.executions group by job_id"
    ).fetchall()
    found = {row[0]: row[1:] for row in rows}
    missing = [job_id for job_id in acknowledged if job_id not in found]
    verdict.lost = len(missing)
    verdict.demand(not missing, f"{len(missing)} acknowledged jobs have no execution, e.g. {missing[:3]}")
    several = [job_id for job_id in acknowledged if job_id in found and found[job_id][0] != 1]
    verdict.demand(not several, f"{len(several)} one-off jobs have several executions, e.g. {several[:3]}")
    expected = {"failing": "FAILED", "poison": "FAILED"}
    odd = [
        (job_id, task_id, found[job_id][1])
        for job_id, task_id in acknowledged.items()
        if job_id in found and found[job_id][1] != expected.get(task_id, "COMPLETED")
    ]
    # A run that was lost five times, with five workers, has failed by the rules, and says so.
    lost_often = {
        row[0] for row in connection.execute("select job_id::text from pgtick.executions where losses > 1").fetchall()
    }
    odd = [each for each in odd if each[0] not in lost_often]
    verdict.demand(not odd, f"{len(odd)} jobs ended in another way than they should, e.g. {odd[:3]}")
    stuck = connection.execute(
        "select count(*) from pgtick.executions where status in ('PENDING', 'RETRYING', 'IN_PROGRESS')"
    ).fetchone()
    verdict.stuck = stuck[0] if stuck else -1
    verdict.demand(verdict.stuck == 0, f"{verdict.stuck} executions are not over")
    for sentence, where in (
        ("started before their time", "started_at < scheduled_at"),
        ("had more attempts than allowed", "attempt > 4"),
        ("failed without every error kept", "task_id = 'failing' and jsonb_array_length(errors) < 4"),
    ):
        query = f"select execution_id, due_at, started_at, attempt, losses from pgtick.executions where {where}"
        broken = connection.execute(query).fetchall()  # type: ignore[arg-type]
        verdict.demand(not broken, f"{len(broken)} executions {sentence}, e.g. {broken[:2]}")


def check_recurring(connection: psycopg.Connection[Any], recurring: list[str], verdict: Verdict) -> None:
    """Every occurrence exactly once: on the grid, without a gap that is not a recorded skip."""
    for job_id in recurring:
        rows = connection.execute(
            "select extract(epoch from scheduled_at)::float8, coalesce(skipped, 1) from pgtick.finished_executions"
            " where job_id = %s order by 1",
            [job_id],
        ).fetchall()
        verdict.demand(len(rows) > 1, f"recurring job {job_id} has hardly run")
        gaps = [later[0] - earlier[0] for earlier, later in pairwise(rows)]
        step = min(gaps, default=1.0)
        wrong = [
            gap
            for gap, (_, skipped) in zip(gaps, rows[1:], strict=True)
            if not any(abs(gap - step * n) < 0.001 for n in (1, skipped))
        ]
        verdict.demand(not wrong, f"recurring job {job_id}: gaps of {wrong[:3]} s, its step is {step} s")


def check_ledger(
    connection: psycopg.Connection[Any],
    runs: dict[str, list[Run]],
    faults: list[Fault],
    logs: list[Path],
    verdict: Verdict,
) -> None:
    """Invariants 1 and 6: what is COMPLETED ran; what ran twice had lost its lease, visibly."""
    query = "select execution_id from pgtick.executions where status = 'COMPLETED'"
    completed = {row[0] for row in connection.execute(query).fetchall()}
    phantom = [e for e in completed if not any(run.ended for run in runs.get(e, []))]
    verdict.demand(not phantom, f"{len(phantom)} executions are COMPLETED without having run, e.g. {phantom[:3]}")
    # One that was lost and whose job was cancelled before it could run again has run.
    query = "select execution_id from pgtick.executions where status in ('CANCELLED', 'SKIPPED') and losses = 0"
    left_out = [row[0] for row in connection.execute(query).fetchall() if any(r.ended for r in runs.get(row[0], []))]
    verdict.demand(not left_out, f"{len(left_out)} executions ran although they were left out, e.g. {left_out[:3]}")
    query = "select execution_id from pgtick.executions where losses > 0"
    visible = {row[0] for row in connection.execute(query).fetchall()}
    for log in logs:
        visible.update(SEEN_LOST.findall(log.read_text(errors="replace")))
    began = [fault.began for fault in faults]
    for execution_id, of_it in runs.items():
        ends = sorted(run.ended for run in of_it if run.ended)
        if len(ends) < 2:
            continue
        before = bisect_right(began, ends[-1]) - 1
        verdict.doubled[faults[before].kind if before >= 0 else "(none)"] += 1
        if execution_id not in visible:
            verdict.unexplained.append(f"{execution_id}: {of_it}")
    verdict.demand(
        not verdict.unexplained,
        f"{len(verdict.unexplained)} executions ended twice without a visible loss, e.g. {verdict.unexplained[:3]}",
    )


def check_fence(
    connection: psycopg.Connection[Any], runs: dict[str, list[Run]], logs: list[Path], verdict: Verdict
) -> None:
    """Invariant 2: an outcome counts only from the claim that stands.

    A worker that ran an execution under claims only that it lost has no outcome that may count.
    """
    worker_of: dict[int, str] = {}
    lost_claims: set[str] = set()
    for log in logs:
        text = log.read_text(errors="replace")
        worker_of.update((int(worker_id), log.stem) for worker_id in STARTED.findall(text))
        lost_claims.update(LOST.findall(text))
    query = "select execution_id, worker_id from pgtick.executions where status in ('COMPLETED', 'FAILED')"
    for execution_id, worker_id in connection.execute(query):
        worker = worker_of.get(worker_id, "")
        claims = {run.claim_id for run in runs.get(execution_id, []) if run.worker == worker}
        if claims and claims <= lost_claims:
            verdict.accepted_late += 1
    verdict.demand(not verdict.accepted_late, f"{verdict.accepted_late} outcomes were accepted after a lost lease")


def check_recovery(runs: dict[str, list[Run]], faults: list[Fault], patience: float, verdict: Verdict) -> None:
    """How long nothing started after a fault, and how long a dead worker's own executions waited."""
    starts = sorted(run.at for of_it in runs.values() for run in of_it)
    for number, fault in enumerate(faults):
        following = faults[number + 1].began if number + 1 < len(faults) else fault.over + 10
        first = bisect_right(starts, fault.over)
        recovery = starts[first] - fault.over if first < len(starts) else 0.0
        if fault.kind not in ON_SERVER:
            # The longest pause of everybody's starts from the fault until the next one.
            window = [fault.began, *(at for at in starts if fault.began < at < min(following, fault.over + 10))]
            recovery = max((later - earlier for earlier, later in pairwise(window)), default=0.0)
        limit = patience * SERVER_RECOVERY_S.get(fault.kind, 2.0)
        verdict.demand(recovery <= limit, f"{fault.kind}: nothing started for {recovery:.1f} s, {limit} s are allowed")
        verdict.recovery_s[fault.kind] = max(verdict.recovery_s[fault.kind], recovery)
    own(runs, faults, patience, verdict)


def own(runs: dict[str, list[Run]], faults: list[Fault], patience: float, verdict: Verdict) -> None:
    """How long what a killed worker ran waited for its next run; a server that is away meanwhile adds its own time."""
    kills = {fault.pid: fault for fault in faults if fault.kind in ("kill worker", "poison job")}
    away = [fault for fault in faults if fault.kind in ON_SERVER]
    for of_it in runs.values():
        for run, again in pairwise(of_it):
            fault = kills.get(run.pid)
            if fault and run.ended is None and 0 <= fault.over - run.at < 30 and again.attempt == run.attempt:
                waited = again.at - fault.over
                verdict.waits.append(waited)
                verdict.recovery_s["its own executions"] = max(verdict.recovery_s["its own executions"], waited)
                allowed = OWN_RECOVERY_S + sum(
                    each.over - each.began + SERVER_RECOVERY_S[each.kind]
                    for each in away
                    if each.began < again.at and each.over > fault.over
                )
                verdict.demand(
                    waited <= patience * allowed,
                    f"an execution of a killed worker waited {waited:.1f} s, {allowed:.1f} s are allowed: {of_it}",
                )
