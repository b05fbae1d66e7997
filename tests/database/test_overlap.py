"""What becomes of an occurrence whose job still runs, by the job's overlap policy."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.waiting import eventually
from tests.support.working import Bench
from workers.execution import Completed, Ended, Failed, Released

Connection = psycopg.Connection[Any]


class Job:
    """A recurring job whose occurrences the test makes pending, `seconds` from now."""

    def __init__(self, connection: Connection, overlap: str | None, **policies: Any) -> None:
        self.connection = connection
        self.overlap = overlap
        given = {"overlap": overlap or "allow", **policies}
        self.id: UUID = self.value("select pgtick.create_job('noop', '* * * * *', policies => %s)", Jsonb(given))

    def value(self, query: str, *values: Any) -> Any:
        row = self.connection.execute(query, values).fetchone()
        return row[0] if row else None

    def occur(self, seconds: float, overlap: str | None = None, **columns: Any) -> None:
        facts = {"overlap": overlap or self.overlap, **columns}
        names = "".join(f", {name}" for name in facts)
        self.connection.execute(
            f"insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key{names})"
            f" select %s, at, at, 'default', 1{', %s' * len(facts)} from (select now() + %s) t (at)",
            [self.id, *facts.values(), timedelta(seconds=seconds)],
        )

    def statuses(self) -> list[str]:
        """Of all its executions but the one that stands in its schedule, oldest first."""
        rows = self.connection.execute(
            "select status from pgtick.executions where job_id = %s and due_at < now() + interval '50 s'"
            " and scheduled_at not in (select next_run_at from pgtick.schedules) order by scheduled_at",
            [self.id],
        )
        return [row[0] for row in rows]

    def reasons(self) -> list[str]:
        rows = self.connection.execute(
            "select error from pgtick.finished_executions"
            " where job_id = %s and status = 'SKIPPED' order by scheduled_at",
            [self.id],
        )
        return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("overlap", "while_it_runs", "afterwards"),
    [
        (None, ["IN_PROGRESS"] * 4, ["COMPLETED"] * 4),
        ("skip", ["IN_PROGRESS", "SKIPPED", "SKIPPED", "SKIPPED"], ["COMPLETED", "SKIPPED", "SKIPPED", "SKIPPED"]),
        (
            "queue_one",
            ["IN_PROGRESS", "PENDING", "SKIPPED", "SKIPPED"],
            ["COMPLETED", "COMPLETED", "SKIPPED", "SKIPPED"],
        ),
        (
            "cancel_running",
            ["IN_PROGRESS", "SKIPPED", "SKIPPED", "PENDING"],
            ["COMPLETED", "SKIPPED", "SKIPPED", "COMPLETED"],
        ),
        ("wait", ["IN_PROGRESS", "PENDING", "PENDING", "PENDING"], ["COMPLETED"] * 4),
    ],
)
def test_each_policy_while_a_run_goes_on_and_after_it(
    bench: Bench, connection: Connection, overlap: str | None, while_it_runs: list[str], afterwards: list[str]
) -> None:
    job = Job(connection, "queue_one" if overlap == "wait" else overlap)
    job.occur(-3, overlap)
    running = bench.claim()
    for seconds in (-2, -1.5, -1):
        job.occur(seconds, overlap)
        running += bench.claim()
    assert job.statuses() == while_it_runs
    for _ in range(4):
        bench.report(*[(execution, Completed()) for execution in running])
        running = bench.claim()
    assert job.statuses() == afterwards
    skipped = afterwards.count("SKIPPED")
    assert len(job.reasons()) == skipped
    assert all(f"overlap: {overlap}" in reason for reason in job.reasons())


def test_all_that_come_due_together_are_dealt_with_like_one_after_the_other(
    bench: Bench, connection: Connection
) -> None:
    job = Job(connection, "skip")
    for seconds in (-3, -2, -1):
        job.occur(seconds)
    (execution,) = bench.claim()
    assert job.statuses() == ["IN_PROGRESS", "SKIPPED", "SKIPPED"]
    bench.report((execution, Completed()))
    assert job.statuses() == ["COMPLETED", "SKIPPED", "SKIPPED"]


def test_cancel_running_asks_the_run_to_stop_and_starts_when_it_has(bench: Bench, connection: Connection) -> None:
    job = Job(connection, "cancel_running")
    job.occur(-2)
    (first,) = bench.claim()
    connection.execute("listen pgtick_cancel")
    job.occur(-1)
    assert bench.claim() == []
    (heard,) = connection.notifies(timeout=5, stop_after=1)
    assert heard.payload == str(first.claim_id)
    assert job.value("select cancel_requested_at is not null from pgtick.running_executions") is True
    bench.report((first, Ended("CANCELLED", "cancelled while running")))
    (second,) = bench.claim()
    bench.report((second, Completed()))
    assert job.statuses() == ["CANCELLED", "COMPLETED"]


@pytest.mark.parametrize("attempt", [0, 1])
def test_cancel_running_never_cancels_a_newer_run_for_an_older_one(
    bench: Bench, connection: Connection, attempt: int
) -> None:
    job = Job(connection, "cancel_running")
    job.occur(-1)
    (newer,) = bench.claim()
    job.occur(-5, attempt=attempt)
    assert bench.claim() == []
    assert job.value("select cancel_requested_at is null from pgtick.running_executions") is True
    bench.report((newer, Completed()))
    (older,) = bench.claim()
    assert older.attempt == attempt + 1


def test_a_retry_is_left_out_neither_for_a_run_of_its_job_nor_for_its_deadline(
    bench: Bench, connection: Connection
) -> None:
    job = Job(connection, "skip")
    job.occur(-1)
    (running,) = bench.claim()
    job.occur(-5, attempt=1, expires_at="2020-01-01Z")
    assert bench.claim() == []
    assert job.statuses() == ["RETRYING", "IN_PROGRESS"]
    bench.report((running, Completed()))
    job.value("update pgtick.pending_executions set expires_at = '2020-01-01Z' where job_id = %s returning 1", job.id)
    (retry,) = bench.claim()
    assert retry.attempt == 2


def test_an_occurrence_that_is_not_due_yet_keeps_its_time_and_may_still_start(
    bench: Bench, connection: Connection
) -> None:
    job = Job(connection, "skip")
    job.occur(-1)
    (first,) = bench.claim()
    job.occur(30)
    bench.clock.time += 29.8
    before = job.value("select due_at from pgtick.pending_executions")
    assert bench.claim() == []
    assert job.statuses() == ["IN_PROGRESS", "PENDING"]
    assert job.value("select due_at from pgtick.pending_executions") == before
    bench.report((first, Completed()))
    (second,) = bench.claim()
    assert second.due_at == pytest.approx(before.timestamp())


def test_what_waits_hides_nothing_from_a_worker_with_one_place(bench: Bench, connection: Connection) -> None:
    job = Job(connection, "queue_one")
    job.occur(-60)
    bench.claim()
    for seconds in range(20):
        job.occur(-50 + seconds, "wait")
    other = job.value("select pgtick.create_job('noop')")
    found = [execution for _ in range(21) for execution in bench.claim(capacity=1)]
    assert [UUID(execution.job_id) for execution in found] == [other]
    assert job.value("select count(*) from pgtick.pending_executions where priority > 0") == 0, "all are out of sight"


def test_a_job_in_the_middle_of_a_change_keeps_no_other_from_being_settled(
    bench: Bench, connection: Connection, owner_dsn: str
) -> None:
    changing, other = Job(connection, "skip"), Job(connection, "skip")
    for job in (changing, other):
        job.occur(-5)
    bench.claim()
    changing.occur(-1.5)
    other.occur(-1)
    with psycopg.connect(owner_dsn) as elsewhere:
        elsewhere.execute("select from pgtick.running_executions where job_id = %s for update", [changing.id])
        assert bench.claim(capacity=1, ticks=3) == []
    assert changing.statuses() == ["IN_PROGRESS", "PENDING"]
    assert other.statuses() == ["IN_PROGRESS", "SKIPPED"]


@pytest.mark.usefixtures("bench")
def test_claims_of_the_same_jobs_in_different_order_wait_for_each_other_in_no_circle(
    connection: Connection, owner_dsn: str
) -> None:
    first, second = sorted((Job(connection, "skip") for _ in range(2)), key=lambda job: job.id)
    claim = """
        select claim_id from pgtick.claim_alone(%s, array(
            select (id, now(), now() + n * interval '1 s', 'default', 1, 2, 0, 0, false, 'skip', null, null, null, null)
                   ::pgtick.pending_executions
            from unnest(%s) with ordinality as each (id, n)), 1, '1 minute')
    """
    found: list[tuple[int]] = []
    with psycopg.connect(owner_dsn) as one, psycopg.connect(owner_dsn) as another:
        one.execute(claim, [[1], [first.id]])
        theirs = threading.Thread(
            target=lambda: found.extend(another.execute(claim, [[2, 3], [second.id, first.id]]).fetchall())
        )
        theirs.start()
        blocked = "select cardinality(pg_blocking_pids(%s)) > 0"
        eventually(lambda: first.value(blocked, another.info.backend_pid))
        one.execute("set lock_timeout = '5s'")
        one.execute(claim, [[4], [second.id]])
        one.commit()
        theirs.join()
    assert found == [(-1,), (-1,)], "it was kept out of both, and did not fail"


@pytest.mark.parametrize(
    "outcome", [Completed(), Failed("no"), Failed("no", final=True), Released(), Ended("CANCELLED", "x")]
)
def test_however_a_run_ends_the_one_that_waits_may_start_at_once(
    bench: Bench, connection: Connection, outcome: Any
) -> None:
    job = Job(connection, "queue_one")
    job.occur(-2)
    (first,) = bench.claim()
    job.occur(-1)
    assert bench.claim() == []
    connection.execute("listen pgtick_due")
    bench.report((first, outcome))
    assert list(connection.notifies(timeout=5, stop_after=1)), "claims are woken"
    claimed = bench.claim()
    assert len(claimed) == 1
    assert isinstance(outcome, Released) or claimed[0].scheduled_us > first.scheduled_us


def test_a_run_whose_worker_died_blocks_until_its_lease_is_over_and_no_longer(
    bench: Bench, connection: Connection
) -> None:
    job = Job(connection, "queue_one")
    job.occur(-2)
    bench.claim()
    job.occur(-1)
    bench.claim()
    assert job.value("select pgtick.settle_waiting()") == []
    assert bench.claim() == []
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 minute'")
    bench.recover()
    connection.execute("select pgtick.settle_waiting()")
    bench.clock.time = job.value("select extract(epoch from clock_timestamp())::float8")  # it is due since then
    (taken,) = bench.claim()
    bench.report((taken, Completed()))
    (taken,) = bench.claim()
    bench.report((taken, Completed()))
    assert job.statuses() == ["COMPLETED", "COMPLETED"]


def test_one_that_came_too_late_does_not_keep_the_newest_out(bench: Bench, connection: Connection) -> None:
    job = Job(connection, "skip")
    job.occur(-7200, expires_at="2020-01-01Z")
    job.occur(-1)
    (execution,) = bench.claim()
    bench.report((execution, Completed()))
    assert job.statuses() == ["SKIPPED", "COMPLETED"]
    assert "could not start in time" in job.reasons()[0]


def test_waiting_in_line_is_limited_by_the_users_deadline_only(bench: Bench, connection: Connection) -> None:
    for policies, expected in (({}, None), ({"expires_after_s": 600}, 600)):
        job = Job(connection, "queue_one", **policies)
        job.occur(-2)
        bench.claim()
        job.occur(-1, expires_at="2100-01-01Z")
        bench.claim()
        waits = "select extract(epoch from expires_at - due_at)::int from pgtick.pending_executions where job_id = %s"
        assert job.value(waits, job.id) == expected


@pytest.mark.parametrize("nonsense", ["soon", -1e300, 1e300, [60]])
def test_a_deadline_that_somebody_made_nonsense_of_by_hand_keeps_no_job_from_being_settled(
    bench: Bench, connection: Connection, nonsense: Any
) -> None:
    jobs = [Job(connection, "queue_one") for _ in range(2)]
    connection.execute(
        "update pgtick.jobs set policies = policies || %s where job_id = %s",
        [Jsonb({"expires_after_s": nonsense}), jobs[0].id],
    )
    for seconds in (-3, -2, -1):
        for job in jobs:
            job.occur(seconds)
    bench.claim()
    assert jobs[1].statuses() == ["IN_PROGRESS", "PENDING", "SKIPPED"]
    assert connection.execute("select pgtick.settle_waiting()").fetchone() == ([],)
