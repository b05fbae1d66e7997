"""`make chaos`: jobs run for MINUTES while one fault follows another; then it is counted whether any was lost.

It starts a primary and a synchronous standby, an API and workers of its own, and leaves nothing behind. The exit status
is 1 when an invariant of the design was broken; the logs and the ledger are kept then.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.check import Run, Verdict, check, read_ledger
from tests.chaos.faults import Fault, Faults
from tests.chaos.fleet import Fleet
from tests.chaos.load import Load
from tests.chaos.pair import Pair
from tests.support.databases import migrate
from tests.support.processes import free_port
from tests.support.waiting import eventually

QUIET_S = 120
OVER = """
    select not exists (select from pgtick.pending_executions) and not exists (select from pgtick.running_executions)
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES") or 10))
    parser.add_argument("--rate", type=int, default=int(os.environ.get("RATE") or 360), help="one-off jobs a second")
    parser.add_argument("--pause", type=float, default=6.0, help="seconds between faults, about")
    parser.add_argument("--patience", type=float, default=1.0, help="factor on the times that recovery may take")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--only", help="one kind of fault, e.g. freeze_worker")
    parser.add_argument("--keep", action="store_true", help="keep logs and ledger in any case")
    given = parser.parse_args()
    print(f"Chaos for {given.minutes:g} minutes at {given.rate} jobs a second, seed {given.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="pgtick-chaos-logs-"))
    print(f"Logs and the ledger: {folder}", flush=True)
    pair = Pair()
    try:
        migrate(pair.dsn)
        port = free_port()
        fleet = Fleet(pair.dsn, folder, port)
        try:
            load = Load(port, given.rate, given.seed)
            wait_for_workers(pair, len(fleet.workers))
            load.start()
            load.longest_wait_s = 0.0
            faults = Faults(pair, fleet, random.Random(given.seed), given.only)
            started = time.monotonic()
            faults.run(started + given.minutes * 60, given.pause)
            load.stop()
            print("No more jobs and faults; waiting until everything is over", flush=True)
            wait_until_over(pair)
        finally:
            fleet.stop()
        logs = [worker.log for worker in fleet.workers]
        with pair.connect() as connection:
            runs = read_ledger(fleet.ledger)
            happened = with_poison(faults.happened, load, runs)
            verdict = check(connection, load.acknowledged, load.recurring, runs, happened, logs, given.patience)
            report(verdict, happened, load, sum(map(len, runs.values())))
    finally:
        pair.destroy()
    if not verdict.broken and not given.keep:
        shutil.rmtree(folder)
    return 1 if verdict.broken else 0


def with_poison(happened: list[Fault], load: Load, runs: dict[str, list[Run]]) -> list[Fault]:
    """The faults in order, with the workers that poison jobs killed."""
    poison = {job_id for job_id, task_id in load.acknowledged.items() if task_id == "poison"}
    firsts = [of_it[0] for execution_id, of_it in runs.items() if execution_id.partition("-")[2] in poison]
    killed = [Fault("poison job", run.at, run.at, run.pid) for run in firsts]
    return sorted([*happened, *killed], key=lambda fault: fault.began)


def wait_for_workers(pair: Pair, count: int) -> None:
    with pair.connect() as connection:
        query = "select count(*) >= %s from pgtick.workers where state = 'RUNNING'"
        eventually(lambda: connection.execute(query, [count]).fetchone()[0], 60)  # type: ignore[index]


def wait_until_over(pair: Pair) -> None:
    deadline = time.monotonic() + QUIET_S
    with pair.connect() as connection:
        while time.monotonic() < deadline:
            row = connection.execute(OVER).fetchone()
            if row and row[0]:
                return
            time.sleep(0.2)


def report(verdict: Verdict, happened: list[Fault], load: Load, runs: int) -> None:
    kinds = list(dict.fromkeys(fault.kind for fault in happened))
    print(f"\n{'fault':22} {'count':>6} {'longest recovery':>17} {'doubled':>8}")
    for kind in sorted(kinds):
        count = sum(fault.kind == kind for fault in happened)
        print(f"{kind:22} {count:6} {verdict.recovery_s[kind]:15.2f} s {verdict.doubled[kind]:8}")
    print(f"{'(its own executions)':22} {len(verdict.waits):6} {verdict.recovery_s['its own executions']:15.2f} s")
    print(
        f"\n{len(happened)} faults, {len(load.acknowledged):,} one-off jobs acknowledged, {runs:,} runs;"
        f" lost {verdict.lost}, stuck {verdict.stuck}, doubled {sum(verdict.doubled.values())},"
        f" of them without a visible loss {len(verdict.unexplained)},"
        f" accepted after a lost lease {verdict.accepted_late}."
        f" Posting was refused and tried again {load.refused} times, the longest took {load.longest_wait_s:.1f} s."
    )
    for sentence in verdict.broken:
        print(f"BROKEN: {sentence}")
    print("An invariant was broken." if verdict.broken else "Every invariant holds.")


if __name__ == "__main__":
    sys.exit(main())
