"""The scenarios. Each takes a bench and a size, and returns what it found; none asserts a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import psycopg

from app.schedule.horizon import first
from app.schedule.zones import tzdata_version
from app.store import jobs as store
from tests.bench import load
from tests.bench import pages as history
from tests.bench.lab import Bench
from tests.bench.results import Result

STATEMENTS = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_planning": "on"}
CLIENTS = 64
"""Connections that post single jobs at once."""


@dataclass(frozen=True)
class Size:
    """How much to do: as asked for, or else the scenario's own size; `quick`: as little as shows that it works."""

    rate: int | None = None
    seconds: float | None = None
    quick: bool = False

    def rate_or(self, usual: int, quick: int) -> int:
        return self.rate or (quick if self.quick else usual)

    def seconds_or(self, usual: float, quick: float) -> float:
        return self.seconds or (quick if self.quick else usual)


def create(bench: Bench, size: Size) -> Result:
    """Making jobs, with no worker running: by SQL, by batches of 1,000 and one by one over HTTP; and an empty Flask."""
    jobs, posts = size.rate_or(200_000, quick=5_000), size.rate_or(20_000, quick=1_000)
    with bench.lab() as lab:
        lab.know_task()
        lab.say(f"{jobs} jobs by SQL")
        started = time.monotonic()
        load.insert(lab.connection, [None] * jobs)
        by_sql = jobs / (time.monotonic() - started)
        address = lab.start_api()
        load.post(address, "/jobs", load.singles(CLIENTS), CLIENTS)  # connections and memories are made
        bodies = load.batches(jobs, 1000)
        lab.say(f"{jobs} jobs by batches over HTTP")
        start = lab.read()
        batches = load.post(address, "/jobs/batch", bodies, clients=4)
        end = lab.read()
        lab.say(f"{posts} single posts")
        singles = load.post(address, "/jobs", load.singles(posts), CLIENTS)
        lab.stop_api()
        address = lab.start_api("tests.bench.empty:app")
        load.post(address, "/jobs", load.singles(CLIENTS), CLIENTS)
        lab.say(f"{posts} posts to an empty Flask endpoint")
        empty = load.post(address, "/jobs", load.singles(posts), CLIENTS)
        made = lab.value("select count(*) from pgtick.jobs")
        return Result(
            "create",
            jobs=jobs,
            jobs_per_s=batches.ok * 1000 / batches.seconds,
            lost=2 * jobs + posts + CLIENTS - made,
            **Result.costs(lab, jobs, end - start),
            facts={
                "sql_jobs_per_s": by_sql,
                "single_posts_per_s": singles.per_s,
                "empty_flask_posts_per_s": empty.per_s,
                "single_as_share_of_empty": singles.per_s / empty.per_s,
                "refused": batches.refused + singles.refused,
            },
        )


def drain(bench: Bench, size: Size) -> Result:
    """A backlog of no-op jobs, worked off by two workers as fast as they can."""
    jobs = size.rate_or(200_000, quick=10_000)
    with bench.lab() as lab:
        lab.start_workers()
        lab.freeze_workers()
        start = lab.read()
        lab.say(f"writing {jobs} jobs")
        load.insert(lab.connection, [None] * jobs)
        lab.connection.execute("analyze")
        ready = lab.read()
        lab.thaw_workers()
        lab.wait_until_finished(jobs, 30 + jobs / 1000)
        end = lab.read()
        lab.stop_workers()
        return Result.of_run(
            "drain", lab, jobs, end - start, server_us_per_job_without_creation=(end - ready).server / jobs * 1e6
        )


def steady(bench: Bench, size: Size) -> Result:
    """Jobs made and run at once, at a rate; each is written two seconds ahead of its time."""
    rate, seconds = size.rate_or(10_000, quick=1_000), size.seconds_or(30, quick=3)
    jobs = round(rate * load.STEP_S) * round(seconds / load.STEP_S)
    with bench.lab() as lab:
        lab.start_workers()
        start = lab.read()
        with load.producing(lab.url, rate, seconds) as producer:
            lab.wait("the producer", lambda: not producer.is_alive(), seconds * 3 + 30, pause=0.5)
        lab.wait_until_finished(jobs, 60)
        end = lab.read()
        lab.stop_workers()
        return Result.of_run("steady", lab, jobs, end - start, rate=rate)


def idle(bench: Bench, size: Size) -> Result:
    """Single jobs for now, posted one at a time: from the commit of the post to the start of the task."""
    posts = size.rate_or(500, quick=30)
    with bench.lab(track_commit_timestamp="on") as lab:
        lab.start_workers()
        address = lab.start_api()
        start = lab.read()
        load.post(address, "/jobs", load.singles(posts), clients=1, pause_s=0.02)
        lab.wait_until_finished(posts, 30)
        end = lab.read()
        lab.stop_workers()
        row = lab.connection.execute(
            "select percentile_disc(array[0.5, 0.95, 0.99, 1]) within group"
            " (order by extract(epoch from f.started_at - pg_xact_commit_timestamp(j.xmin))::float8 * 1000)"
            " from pgtick.finished_executions f join pgtick.jobs j using (job_id)"
        ).fetchone()
        assert row is not None
        since_commit = dict(zip(("p50", "p95", "p99", "max"), row[0], strict=True))
        return Result.of_run("idle", lab, posts, end - start, ms_from_commit_to_start=since_commit)


def beforehand(bench: Bench, size: Size) -> Result:
    """Jobs that were all written before the first was due, spread evenly over their time."""
    rate, seconds = size.rate_or(20_000, quick=1_000), size.seconds_or(20, quick=3)
    jobs = round(rate * seconds)
    with bench.lab() as lab:
        lab.start_workers()
        start = lab.read()
        at = lab.value("select now() + interval '1 second' * %s", 3 + jobs / 15_000)
        lab.say(f"writing {jobs} jobs")
        load.insert(lab.connection, load.spread(at, seconds, jobs))
        lab.sleep_until(at, "the first is due in a moment")
        lab.wait_until_finished(jobs, seconds + 60)
        end = lab.read()
        lab.stop_workers()
        return Result.of_run("beforehand", lab, jobs, end - start, rate=rate)


def herd(bench: Bench, size: Size) -> Result:
    """Many jobs due at the same instant."""
    jobs = size.rate_or(20_000, quick=2_000)
    with bench.lab() as lab:
        lab.start_workers()
        start = lab.read()
        at = lab.value("select now() + interval '1 second' * %s", 2 + jobs / 10_000)
        load.insert(lab.connection, [at] * jobs)
        time.sleep(max(0.0, at.timestamp() - time.time()))
        lab.wait_until_finished(jobs, 60)
        end = lab.read()
        lab.stop_workers()
        return Result.of_run("herd", lab, jobs, end - start)


def recurring(bench: Bench, size: Size) -> Result:
    """Minutely cron jobs, so many that RATE of them start a second, each with a jitter of up to a second."""
    rate, seconds = size.rate_or(10_000, quick=100), size.seconds_or(120, quick=3)
    jobs, policies = 60 * rate, '{"jitter_s": 1}'
    with bench.lab() as lab:
        lab.know_task()
        now = lab.value("select now()")
        start_at = (now + timedelta(seconds=5 + jobs / 15_000)).replace(microsecond=0)
        expressions = [f"{second} * * * * *" for second in range(60)]
        first_runs = [first(text, "UTC", None, start_at - timedelta(microseconds=1)) for text in expressions]
        lab.say(f"writing {jobs} schedules")
        new = load.recurring_jobs(jobs, expressions, [at for at in first_runs if at], policies)
        for place in range(0, jobs, 1000):
            store.insert(lab.connection, new[place : place + 1000], tzdata_version())
        lab.connection.execute("analyze")
        lab.start_workers()
        lab.sleep_until(start_at, f"{jobs} schedules begin in a moment")
        start = lab.read()
        end_at = start_at + timedelta(seconds=seconds)
        lab.sleep_until(end_at + timedelta(seconds=3), f"{rate} starts a second for {seconds:g} s")
        end = lab.read()
        lab.stop_workers()
        # The first n seconds of a minute have one occurrence of each of n expressions.
        expected = round(rate * seconds)
        found = lab.value(
            "select count(*) from pgtick.finished_executions"
            " where scheduled_at >= %s and scheduled_at < %s and started_at is not null",
            start_at,
            end_at,
        )
        return Result.of_run("recurring", lab, expected, end - start, lost=expected - found, schedules=jobs)


HISTORY = """
insert into pgtick.finished_executions
    (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at)
select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, at, 'user_' || n %% 1000, 1,
    'COMPLETED', 1, at, at
from (
    select n, now() - interval '1 hour' + n * interval '100 microseconds' as at
    from generate_series((select count(*) from pgtick.finished_executions where started_at is null) + 1, %(rows)s) n
) as rows
"""
FUTURE = """
insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)
select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, at, at, 'user_' || n %% 1000, 1
from (
    select n, now() + interval '1 hour' + interval '46 hours' * n / %(rows)s as at from generate_series(1, %(rows)s) n
) as rows
"""


def flat(bench: Bench, size: Size) -> Result:
    """What a claim costs as history, the future and the partitions grow; µs of the server's time per row taken."""
    jobs, scale = size.rate_or(20_000, quick=500), 100 if size.quick else 1
    hours = 72 if size.quick else 720
    with bench.lab(**STATEMENTS) as lab:
        lab.connection.execute("create extension pg_stat_statements")
        lab.start_workers()
        costs: dict[str, float] = {}
        total = 0

        def measure(state: str) -> None:
            nonlocal total
            lab.settle()
            lab.freeze_workers()
            load.insert(lab.connection, [None] * jobs)
            lab.claim_cost()
            lab.thaw_workers()
            lab.wait_until_finished(jobs, 60)
            total += jobs
            _, rows, ms = lab.claim_cost()
            costs[state] = ms * 1000 / max(rows, 1)

        start = lab.read()
        measure("warm up")
        measure("empty")
        for finished in (1_000_000 // scale, 10_000_000 // scale):
            lab.say(f"writing history up to {finished} rows")
            lab.connection.execute(HISTORY, {"rows": finished})
            measure(f"{finished:,} finished")
        lab.say("writing what is due later")
        lab.connection.execute(FUTURE, {"rows": 5_000_000 // scale})
        measure(f"{5_000_000 // scale:,} due later")
        lab.connection.execute("select pgtick.ensure_partitions(interval '1 hour' * %s)", [hours])
        measure(f"{hours} hours of partitions")
        end = lab.read()
        lab.stop_workers()
        baseline = costs["empty"]
        return Result.of_run(
            "flat", lab, total, end - start, claim_us_per_row=costs, worst_to_first=max(costs.values()) / baseline
        )


def snapshot(bench: Bench, size: Size) -> Result:
    """A steady load while an old snapshot keeps VACUUM from its work; how long a claim takes as time goes by."""
    rate, seconds = size.rate_or(2_000, quick=500), size.seconds_or(120, quick=3)
    jobs = round(rate * load.STEP_S) * round(seconds / load.STEP_S)
    with bench.lab(**STATEMENTS) as lab:
        lab.connection.execute("create extension pg_stat_statements")
        lab.start_workers()
        start = lab.read()
        spans: list[float] = []
        with psycopg.connect(lab.url) as holder, load.producing(lab.url, rate, seconds) as producer:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("select count(*) from pgtick.running_executions")
            time.sleep(load.AHEAD_S + 1)
            lab.claim_cost()
            for _ in range(6):
                lab.say(f"a snapshot is held; ms per claim so far: {' '.join(f'{ms:.1f}' for ms in spans)}")
                time.sleep(seconds / 6)
                calls, _, ms = lab.claim_cost()
                spans.append(ms / max(calls, 1))
            lab.wait("the producer", lambda: not producer.is_alive(), 60)
            lab.wait_until_finished(jobs, 60)
        end = lab.read()
        lab.stop_workers()
        return Result.of_run(
            "snapshot", lab, jobs, end - start, claim_ms_by_sixth=spans, worst_to_first=max(spans) / spans[0]
        )


def pages(bench: Bench, size: Size) -> Result:
    """How long pages of the API and the dashboard take on a long history, ms from request to answer."""
    rows, hours = size.rate_or(10_000_000, quick=10_000), 24 if size.quick else 720
    with bench.lab() as lab:
        history.fill(lab, rows, hours)
        address = lab.start_api()
        took = history.times(lab, address, hours)
        return Result("pages", jobs=rows, jobs_per_s=0.0, facts={"partitions": hours} | took)


SCENARIOS: dict[str, Callable[[Bench, Size], Result]] = {
    "create": create,
    "drain": drain,
    "steady": steady,
    "beforehand": beforehand,
    "herd": herd,
    "idle": idle,
    "recurring": recurring,
    "flat": flat,
    "snapshot": snapshot,
    "pages": pages,
}
