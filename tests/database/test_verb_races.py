"""Pausing, editing, skipping and deleting against planners and claimers: nothing of the old definition is left."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.clock import Clock
from app.domain.execution import ExecutionId
from app.settings import Settings
from app.store.connections import HOT_SETTINGS
from workers.claimer import Claimer
from workers.execution import Completed, Execution
from workers.loop import Link
from workers.planner import Planner
from workers.registry import Task
from workers.reporter import Reporter
from workers.slots import Slots

pytestmark = pytest.mark.slow

Connection = psycopg.Connection[Any]
RACES = 1_000
JOBS = 60
AHEAD = timedelta(seconds=0.5)
"""What is claimed so far ahead of its time counts as running."""
EVEN, ODD = "*/2 * * * * *", "1-59/2 * * * * *"


async def noop() -> None: ...


class Worker:
    """Plans and claims as fast as it can in a thread of its own; what it claims is over soon."""

    def __init__(self, dsn: str, worker_id: int) -> None:
        self.settings = Settings(database_url=dsn, horizon_s=4, poll_s=0.1)
        self.clock = Clock()
        self.claimed: list[tuple[UUID, int]] = []
        self.errors: list[str] = []
        self.reporter: Reporter
        self._worker_id = worker_id
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(20)

    async def _run(self) -> None:
        links = [Link("test", self.settings.database_url, HOT_SETTINGS) for _ in range(3)]
        # The rules are about the database's clock.
        connection = await links[0].connection()
        sent = time.monotonic()
        row = await (await connection.execute("select extract(epoch from clock_timestamp())::float8")).fetchone()
        assert row is not None
        self.clock.observe(row[0], sent, time.monotonic())
        self.slots = [Slots("async", 1000, {1: Task(task_id="noop", function=noop, pool="async")})]
        self.reporter = Reporter(self.settings, self.clock, links[2], self._worker_id, {}, lambda: None)
        planner = Planner(self.settings, self.clock, links[0], lambda _: None)
        claimer = Claimer(self.settings, self.clock, links[1], self.slots, self._worker_id, self._take)
        await asyncio.gather(*[self._loop(each.tick) for each in (planner, claimer, self.reporter)])
        for link in links:
            await link.close()

    def _take(self, executions: list[Execution]) -> None:
        self.claimed += [(UUID(execution.job_id), execution.scheduled_us) for execution in executions]
        for execution in executions:
            execution.started_at = self.clock.now()
            # Some run into the next one, which is then kept out and put back.
            pause = random.choice([0, 0.4, 1.5])
            asyncio.get_running_loop().call_later(pause, self.reporter.add, execution, Completed())

    async def _loop(self, tick: Callable[[], Awaitable[float]]) -> None:
        while not self._stopping.is_set():
            try:
                await tick()
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.005)


class Racer:
    """Does verbs to jobs and looks at the database right after each."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.jobs = [self.create() for _ in range(JOBS)]
        self.old_after: list[tuple[UUID, datetime, datetime, str]] = []
        """Jobs, when what ends their definition was asked for and when done, and at which seconds nothing may run from
        then on: even, odd or any."""
        self.skipped: list[str] = []

    def value(self, query: str, *values: Any) -> Any:
        row = self.connection.execute(query, values).fetchone()
        return row[0] if row else None

    def create(self) -> UUID:
        policies = Jsonb({"overlap": random.choice(["allow", "skip", "queue_one"])})
        made: UUID = self.value("select pgtick.create_job('noop', %s, policies => %s)", EVEN, policies)
        return made

    def left_over(self, job_id: UUID, parity: str = "any") -> int:
        """Pending executions to come; in seconds of that parity."""
        return int(
            self.value(
                "select count(*) from pgtick.pending_executions where job_id = %s and due_at > clock_timestamp()"
                " and (%s = 'any' or (extract(second from scheduled_at)::int %% 2 = 0) = (%s = 'even'))",
                job_id,
                parity,
                parity,
            )
        )

    def pause(self, place: int) -> None:
        job_id = self.jobs[place]
        self.value("select pgtick.pause_job(%s)", job_id)
        assert self.left_over(job_id) == 0
        time.sleep(0.002)
        assert self.left_over(job_id) == 0
        self.value("select pgtick.resume_job(%s)", job_id)

    def edit(self, place: int) -> None:
        job_id = self.jobs[place]
        old = self.value("select expression from pgtick.jobs where job_id = %s", job_id)
        new, parity = (ODD, "even") if old == EVEN else (EVEN, "odd")
        asked_at = self.value("select clock_timestamp()")
        assert self.value("select pgtick.edit_job(%s, %s)", job_id, Jsonb({"schedule": new})) is True
        at = self.value("select clock_timestamp()")
        assert self.left_over(job_id, parity) == 0
        time.sleep(0.002)
        assert self.left_over(job_id, parity) == 0
        self.old_after.append((job_id, asked_at, at, parity))

    def skip(self, place: int) -> None:
        try:
            execution_id = self.value("select pgtick.skip_run(%s)", self.jobs[place])
        except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.InvalidParameterValue):
            return  # just claimed, or not planned yet
        skipped = ExecutionId.parse(execution_id)
        assert skipped is not None
        states = "select array_agg(status) from pgtick.executions where job_id = %s and scheduled_at = %s"
        assert self.value(states, self.jobs[place], skipped.scheduled_at) == ["SKIPPED"]
        self.skipped.append(execution_id)

    def delete(self, place: int) -> None:
        job_id = self.jobs[place]
        asked_at = self.value("select clock_timestamp()")
        self.value("select pgtick.cancel_job(%s)", job_id)
        at = self.value("select clock_timestamp()")
        assert self.left_over(job_id) == 0
        self.old_after.append((job_id, asked_at, at, "any"))
        self.jobs[place] = self.create()


def too_few(workers: list[Worker]) -> bool:
    return sum(len(worker.claimed) for worker in workers) <= RACES / 10


@pytest.mark.timeout(90)
def test_a_thousand_verbs_against_planners_and_claimers_leave_nothing_behind(dsn: str, connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('noop', 'x')")
    random.seed(5)
    racer = Racer(connection)
    done: Counter[str] = Counter()
    workers = [Worker(dsn, number) for number in (1, 2)]
    for worker in workers:
        worker.__enter__()
    try:
        # On a quick machine a thousand verbs are over before enough was claimed to race with.
        deadline = time.monotonic() + 45
        while sum(done.values()) < RACES or (too_few(workers) and time.monotonic() < deadline):
            verb = random.choices([racer.pause, racer.edit, racer.skip, racer.delete], [4, 4, 4, 1])[0]
            verb(random.randrange(JOBS))
            done[verb.__name__] += 1
    finally:
        for worker in workers:
            worker.__exit__()
    assert [error for worker in workers for error in worker.errors] == []
    claimed = [claim for worker in workers for claim in worker.claimed]
    assert not too_few(workers), "there was something to race with"
    assert [claim for claim, times in Counter(claimed).items() if times > 1] == []
    assert len(racer.skipped) > RACES / 20
    ran = {str(ExecutionId(datetime.fromtimestamp(us / 1e6).astimezone(), str(job))) for job, us in claimed}
    assert ran.isdisjoint(racer.skipped)
    by_job: dict[UUID, list[datetime]] = {}
    for job_id, us in claimed:
        by_job.setdefault(job_id, []).append(datetime.fromtimestamp(us / 1e6).astimezone())
    edits: dict[UUID, list[tuple[datetime, datetime, str]]] = {}
    for job_id, asked_at, at, gone in racer.old_after:
        edits.setdefault(job_id, []).append((asked_at, at, gone))
    for job_id, changes in edits.items():
        ends = [asked_at for asked_at, _, _ in changes[1:]] + [datetime.max.replace(tzinfo=changes[0][0].tzinfo)]
        for (_, at, gone), end in zip(changes, ends, strict=True):
            stale = [
                run
                for run in by_job.get(job_id, [])
                if at + AHEAD < run < end and (gone == "any" or (run.second % 2 == 0) == (gone == "even"))
            ]
            assert stale == [], (job_id, at, end, gone)
    twice = connection.execute(
        "select job_id, scheduled_at from pgtick.executions group by 1, 2 having count(*) > 1"
    ).fetchall()
    assert twice == []
