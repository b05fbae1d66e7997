"""The scenarios. Each takes a bench and a size, and returns what it found; none asserts a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.bench import load
from tests.bench.lab import Bench
from tests.bench.results import Result


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
        load.post(address, "/jobs", [load.post_now(n) for n in range(posts)], clients=1, pause_s=0.02)
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


SCENARIOS: dict[str, Callable[[Bench, Size], Result]] = {
    "drain": drain,
    "steady": steady,
    "idle": idle,
    "herd": herd,
}
