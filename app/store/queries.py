"""The statements in sql/*.sql by name: `queries.complete`. A file's name is the query's name."""

from __future__ import annotations

import functools
from pathlib import Path

FOLDER = Path(__file__).parent / "sql"


def _read(name: str) -> str:
    return (FOLDER / f"{name}.sql").read_text()


read_jobs = _read("read_jobs")
last_runs = _read("last_runs")
pending_partitions = _read("pending_partitions")
overlooked = _read("overlooked")
held_tasks = _read("held_tasks")
admit = _read("admit")
complete = _read("complete")
finish = _read("finish")
retry = _read("retry")
release = _read("release")
store_progress = _read("store_progress")
select_endpoints = _read("select_endpoints")
tell_tasks = _read("tell_tasks")
locked_claims = _read("locked_claims")
drop_claim = _read("drop_claim")
unknown_claims = _read("unknown_claims")
findings = _read("findings")
disown = _read("disown")
bury_worker = _read("bury_worker")
keep_alive = _read("keep_alive")
recover_expired = _read("recover_expired")
expired_claims = _read("expired_claims")
move_claim = _read("move_claim")
settle_waiting = _read("settle_waiting")
select_schedules = _read("select_schedules")
due_schedules = _read("due_schedules")
plan_occurrences = _read("plan_occurrences")
select_rezoned = _read("select_rezoned")
forget_schedules = _read("forget_schedules")
move_schedules = _read("move_schedules")
register_tasks = _read("register_tasks")
put_endpoint = _read("put_endpoint")
put_secret = _read("put_secret")
register_worker = _read("register_worker")
add_stats = _read("add_stats")
retire_workers = _read("retire_workers")
ensure_partitions = _read("ensure_partitions")
expired_partitions = _read("expired_partitions")
break_schedule = _read("break_schedule")


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
