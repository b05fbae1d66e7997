"""The statements in sql/*.sql by name: `queries.complete`. A file's name is the query's name."""

from __future__ import annotations

import functools
from pathlib import Path

FOLDER = Path(__file__).parent / "sql"


def _read(name: str) -> str:
    return (FOLDER / f"{name}.sql").read_text()


add_stats = _read("add_stats")
admit = _read("admit")
break_schedule = _read("break_schedule")
bury_worker = _read("bury_worker")
complete = _read("complete")
disown = _read("disown")
drop_claim = _read("drop_claim")
due_schedules = _read("due_schedules")
ensure_partitions = _read("ensure_partitions")
expired_claims = _read("expired_claims")
expired_partitions = _read("expired_partitions")
findings = _read("findings")
finish = _read("finish")
forget_schedules = _read("forget_schedules")
held_tasks = _read("held_tasks")
keep_alive = _read("keep_alive")
last_runs = _read("last_runs")
locked_claims = _read("locked_claims")
move_claim = _read("move_claim")
move_schedules = _read("move_schedules")
overlooked = _read("overlooked")
pending_partitions = _read("pending_partitions")
plan_occurrences = _read("plan_occurrences")
put_endpoint = _read("put_endpoint")
put_secret = _read("put_secret")
read_jobs = _read("read_jobs")
recover_expired = _read("recover_expired")
register_tasks = _read("register_tasks")
register_worker = _read("register_worker")
release = _read("release")
retire_workers = _read("retire_workers")
retry = _read("retry")
select_endpoints = _read("select_endpoints")
select_rezoned = _read("select_rezoned")
select_schedules = _read("select_schedules")
settle_waiting = _read("settle_waiting")
store_progress = _read("store_progress")
tell_tasks = _read("tell_tasks")
unknown_claims = _read("unknown_claims")


@functools.lru_cache(maxsize=100)
def claim_due(partition: str | None = None) -> str:
    """The claim from one partition of pending_executions, or from all of them at once.

    Of one, the plan may be kept: there is one way to each row, the index into the partition and then the row's place,
    so it does not depend on how full the partition was when the plan was made. Of all, bounds that can be seen while
    planning leave out the other hours.
    """
    bounds = " and p.due_at >= %(floor)s::timestamptz and p.due_at < %(until)s::timestamptz"
    claim = _read("claim_due").replace("{pending}", f"pgtick.{partition or 'pending_executions'}")
    return claim.replace("{within_bounds}", "" if partition else bounds)
