"""What people on call do in psql: ask why something does not run, pause, resume, retry, move, drain."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def task(connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target, queue) values ('send_email', 'mail:send', 'mail')")


def value(connection: Connection, query: str, *arguments: object) -> Any:
    row = connection.execute(query, arguments).fetchone()
    assert row is not None
    return row[0]


def create(connection: Connection, schedule: str = "now") -> UUID:
    made: UUID = value(connection, "select pgtick.create_job('send_email', %s)", schedule)
    return made


def start_worker(connection: Connection, **columns: object) -> None:
    facts = {"name": "host:1", "capacity": 10, "task_keys": [1], "version": "0", **columns}
    places = ", ".join(["%s"] * len(facts))
    connection.execute(f"insert into pgtick.workers ({', '.join(facts)}) values ({places})", list(facts.values()))


def make_late(connection: Connection) -> None:
    connection.execute(
        "update pgtick.pending_executions"
        " set due_at = now() - interval '1 minute', scheduled_at = now() - interval '1 minute'"
    )


def claim(connection: Connection, job_id: UUID, due: str = "now()", lease: str = "now() + interval '30 s'") -> None:
    connection.execute(
        "with gone as (delete from pgtick.pending_executions where job_id = %s returning *)"
        " insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority,"
        " attempt, losses, suspect, worker_id, lease_expires_at, origin)"
        f" select 1, job_id, scheduled_at, {due}, user_id, task_key, priority, attempt + 1, losses, suspect, 1,"
        f" {lease}, origin from gone",
        [job_id],
    )


def finish(connection: Connection, job_id: UUID, status: str, error: str | None = None, attempt: int = 4) -> None:
    connection.execute(
        "with gone as (delete from pgtick.pending_executions where job_id = %s returning *)"
        " insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
        " started_at, finished_at, error, origin) select job_id, scheduled_at, user_id, task_key, %s, %s, due_at,"
        " due_at, now(), %s, origin from gone",
        [job_id, status, attempt, error],
    )


def explanation(connection: Connection, job_id: UUID) -> str:
    """By the id of the execution, which must say the same as by the id of its job."""
    by_job: str = value(connection, "select pgtick.explain(%s)", str(job_id))
    execution_id = connection.execute(
        "select execution_id from pgtick.executions where job_id = %s order by scheduled_at", [job_id]
    ).fetchone()
    if execution_id is not None:
        # Times that pass between the two calls differ.
        by_execution = value(connection, "select pgtick.explain(%s)", execution_id[0])
        assert by_execution[:20] == by_job[:20]
    return by_job


# ── explain ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def far_off(connection: Connection) -> UUID:
    return create(connection, "2030-01-01T00:00:00Z")


def in_the_future(connection: Connection) -> UUID:
    job_id = create(connection)
    connection.execute("update pgtick.pending_executions set due_at = now() + interval '2 hours'")
    return job_id


def without_any_worker(connection: Connection) -> UUID:
    start_worker(connection, last_seen_at="2020-01-01Z")
    return create(connection)


def without_a_worker_that_knows_it(connection: Connection) -> UUID:
    start_worker(connection, task_keys=[99])
    return create(connection)


def with_workers_that_know_it_or_serve_its_queue(connection: Connection) -> UUID:
    start_worker(connection, task_keys=[99], queues=["reports"])
    start_worker(connection, task_keys=[99])
    return create(connection)


def without_a_worker_of_its_queue(connection: Connection) -> UUID:
    start_worker(connection, task_keys=[99], queues=["reports"])
    return create(connection)


def with_a_worker_that_is_not_seen(connection: Connection) -> UUID:
    start_worker(connection, last_seen_at=datetime.now(UTC) - timedelta(seconds=28))
    return create(connection)


def with_two_workers_that_are_not_seen(connection: Connection) -> UUID:
    start_worker(connection, last_seen_at=datetime.now(UTC) - timedelta(seconds=40))
    return with_a_worker_that_is_not_seen(connection)


def with_workers_draining(connection: Connection) -> UUID:
    start_worker(connection, state="DRAINING")
    return create(connection)


def behind_others(connection: Connection) -> UUID:
    start_worker(connection, running=10)
    first = create(connection)
    second = create(connection)
    make_late(connection)
    connection.execute("update pgtick.pending_executions set priority = 1 where job_id = %s", [first])
    return second


def behind_others_of_its_pool(connection: Connection) -> UUID:
    pools = {"async": {"capacity": 1000, "taken": 3}, "thread": {"capacity": 20, "taken": 20}}
    start_worker(connection, capacity=1020, running=23, pools=Jsonb(pools))
    connection.execute("update pgtick.tasks set pool = 'thread'")
    job_id = create(connection)
    make_late(connection)
    return job_id


def behind_what_a_worker_has_claimed_since_it_told(connection: Connection) -> UUID:
    start_worker(connection, capacity=1, running=0, pools=Jsonb({"async": {"capacity": 1, "taken": 0}}))
    claim(connection, create(connection))
    job_id = create(connection)
    make_late(connection)
    return job_id


def on_a_blocked_worker(connection: Connection) -> UUID:
    start_worker(connection, blocked_since=datetime.now(UTC) - timedelta(seconds=42))
    return create(connection)


def running_on_a_blocked_worker(connection: Connection) -> UUID:
    start_worker(connection, blocked_since=datetime.now(UTC) - timedelta(seconds=42))
    job_id = create(connection)
    claim(connection, job_id)
    return job_id


def held_by_a_transaction(connection: Connection) -> UUID:
    start_worker(connection)
    job_id = create(connection)
    make_late(connection)
    return job_id


def at_the_limit_of_its_task(connection: Connection) -> UUID:
    start_worker(connection)
    connection.execute("update pgtick.tasks set priority = 6, max_concurrent = 1")
    first, second = create(connection), create(connection)
    claim(connection, first)
    connection.execute("update pgtick.running_executions set limit_key = ''")
    return second


def at_the_limit_of_its_key(connection: Connection) -> UUID:
    job_id = at_the_limit_of_its_task(connection)
    connection.execute(
        "update pgtick.tasks set max_concurrent = null, max_per_key = 1, concurrency_key = 'to';"
        "update pgtick.running_executions set limit_key = 'ann'; update pgtick.pending_executions set limit_key = 'ann'"
    )
    return job_id


def at_the_rate_of_its_task(connection: Connection) -> UUID:
    job_id = at_the_limit_of_its_task(connection)
    connection.execute("update pgtick.tasks set max_concurrent = null, rate_per_s = 5")
    return job_id


def within_its_rate_but_without_a_slot(connection: Connection) -> UUID:
    job_id = at_the_rate_of_its_task(connection)
    connection.execute("update pgtick.workers set running = capacity")
    return job_id


def claimed_ahead(connection: Connection) -> UUID:
    start_worker(connection)
    job_id = create(connection)
    claim(connection, job_id, due="now() + interval '10 s'")
    return job_id


def running(connection: Connection) -> UUID:
    start_worker(connection)
    job_id = create(connection)
    claim(connection, job_id)
    return job_id


def running_for_long(connection: Connection) -> UUID:
    job_id = running(connection)
    connection.execute(
        "update pgtick.running_executions set claimed_at = now() - interval '3 hours', due_at = claimed_at"
    )
    return job_id


def running_on_a_worker_that_is_not_seen(connection: Connection) -> UUID:
    job_id = running(connection)
    connection.execute("update pgtick.workers set last_seen_at = now() - interval '20 seconds'")
    return job_id


def with_its_lease_lost(connection: Connection) -> UUID:
    start_worker(connection)
    job_id = create(connection)
    claim(connection, job_id, lease="now() - interval '1 s'")
    return job_id


def retrying(connection: Connection) -> UUID:
    job_id = create(connection)
    connection.execute(
        "update pgtick.pending_executions set attempt = 2, due_at = now() + interval '25 s',"
        """ errors = '[{"error": "ValueError: a"}, {"error": "ValueError: b"}]'"""
    )
    return job_id


def behind_its_own_run(connection: Connection) -> UUID:
    start_worker(connection)
    job_id = create(connection)
    claim(connection, job_id)
    connection.execute("update pgtick.running_executions set overlap = 'skip'")
    execution_id = value(connection, "select pgtick.run_now(%s)", job_id)
    connection.execute("update pgtick.pending_executions set overlap = 'queue_one'")
    assert "must not overlap" in value(connection, "select pgtick.explain(%s)", execution_id)
    return job_id


def paused(connection: Connection) -> UUID:
    job_id = create(connection, "0 10 * * *")
    connection.execute("select pgtick.pause_job(%s, 'holidays')", [job_id])
    return job_id


def with_a_broken_schedule(connection: Connection) -> UUID:
    job_id = create(connection, "0 10 * * *")
    connection.execute("update pgtick.schedules set problem = 'unknown zone Mars/Olympus'")
    return job_id


def planned(connection: Connection) -> UUID:
    job_id = create(connection, "0 10 * * *")
    connection.execute("update pgtick.schedules set next_run_at = now() + interval '3 hours'")
    return job_id


def unplanned(connection: Connection) -> UUID:
    job_id = create(connection, "0 10 * * *")
    connection.execute("update pgtick.schedules set next_run_at = now() - interval '1 hour'")
    return job_id


def completed(connection: Connection) -> UUID:
    job_id = create(connection)
    finish(connection, job_id, "COMPLETED", attempt=1)
    return job_id


def failed(connection: Connection) -> UUID:
    job_id = create(connection)
    finish(connection, job_id, "FAILED", "ValueError: no")
    return job_id


def skipped(connection: Connection) -> UUID:
    job_id = create(connection)
    finish(connection, job_id, "SKIPPED", "the run before it was not over")
    return job_id


def cancelled(connection: Connection) -> UUID:
    job_id = create(connection)
    connection.execute("select pgtick.cancel_job(%s)", [job_id])
    return job_id


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        (far_off, r"^It is planned for 2030-01-01 .* workers get it shortly before\.$"),
        (in_the_future, r"^It is not due before .*, in 2\.0 h\.$|in 120 min\.$"),
        (without_any_worker, r"^No worker is alive: .* start a worker\.$"),
        (without_a_worker_that_knows_it, r"^No live worker knows task send_email: .*PGTICK_TASKS"),
        (
            with_workers_that_know_it_or_serve_its_queue,
            r"^No live worker knows task send_email: .* its module, mail, and that serves queue mail\.$",
        ),
        (without_a_worker_of_its_queue, r"^No live worker serves queue mail of task send_email: they serve reports; "),
        (
            with_a_worker_that_is_not_seen,
            r"^The only worker that knows task send_email has not been seen for 28\.\d s: .*or start a worker\.$",
        ),
        (
            with_two_workers_that_are_not_seen,
            r"^None of the 2 workers that know task send_email has been seen for 28\.",
        ),
        (with_workers_draining, r"^All workers that know task send_email are draining"),
        (
            behind_others,
            r"^All 10 async slots of the worker that knows .* are taken, and 1 execution of it is before.*CONCURRENCY",
        ),
        (behind_others_of_its_pool, r"^All 20 thread slots .* are taken, and 0 executions .* PGTICK_THREADS\.$"),
        (behind_what_a_worker_has_claimed_since_it_told, r"^All 1 async slots .* are taken"),
        (on_a_blocked_worker, r"^The event loop of the worker that knows task send_email has not come round for 42\."),
        (running_on_a_blocked_worker, r"^It is running: .* has not come round for 42\.\d s: a task blocks it\.$"),
        (
            held_by_a_transaction,
            r"^It has been due for 60\.\d s, and workers with 10 free slots know task send_email: .*idle in trans",
        ),
        (
            at_the_limit_of_its_task,
            r"^Task send_email may run 1 at once \(max_concurrent\), and so many do; it has been ",
        ),
        (at_the_limit_of_its_key, r"^Task send_email may run 1 at once for each to \(max_per_key\), .* for \"ann\"; "),
        (at_the_rate_of_its_task, r"^Task send_email may start 5 times a second \(rate_per_s\), and others are before"),
        (within_its_rate_but_without_a_slot, r"^All 10 async slots .* are taken"),
        (claimed_ahead, r"^Worker host:1 has claimed it ahead of its time and starts it at .*, in \d+\.\d s\.$"),
        (running, r"^It is running: attempt 1 on worker host:1 for .*, lease until "),
        (running_for_long, r"^It is running: .* It has no timeout; pgtick\.cancel_execution stops it\.$"),
        (
            running_on_a_worker_that_is_not_seen,
            r"^It is running: .* not been seen for 20\.\d s: when its lease is over, an",
        ),
        (with_its_lease_lost, r"^Worker host:1 lost its lease 1\.\d s ago and was last seen .*janitor"),
        (retrying, r"^It is RETRYING: attempt 2 failed \(ValueError: b\), the next one comes at .*, in 2\d\.\d s\.$"),
        (behind_its_own_run, r"^It is running"),
        (paused, r"^Its job is paused since .* \(holidays\); pgtick\.resume_job continues it\.$"),
        (with_a_broken_schedule, r"^Its schedule is broken and makes no occurrences: unknown zone Mars/Olympus$"),
        (planned, r"^It is planned for .*, in 3\.0 h; workers get it shortly before\.$"),
        (unplanned, r"^Its occurrence of .* should be pending since 60 min: no planner comes round"),
        (completed, r"^It is COMPLETED since .* \(attempt 1, started 0 ms after its time\)\.$"),
        (
            failed,
            r"^It FAILED for good at .* after 4 attempts: ValueError: no\. pgtick\.retry_failed starts it anew\.$",
        ),
        (skipped, r"^It was SKIPPED at .*: the run before it was not over\.$"),
        (cancelled, r"^It was CANCELLED at "),
    ],
    ids=lambda case: case.__name__ if callable(case) else "",
)
def test_explain_says_why(connection: Connection, situation: Callable[[Connection], UUID], words: str) -> None:
    job_id = situation(connection)
    sentence = explanation(connection, job_id)
    assert re.search(words, sentence), sentence


@pytest.mark.parametrize("year", [2027, 2028], ids=["the next", "a later one"])
def test_explain_knows_what_was_skipped_by_hand_long_before_its_time(connection: Connection, year: int) -> None:
    job_id = create(connection, "0 10 1 6 *")
    connection.execute("update pgtick.schedules set next_run_at = '2027-06-01 10:00Z'")
    skipped = value(connection, "select pgtick.skip_run(%s, %s)", job_id, f"{year}-06-01 10:00Z")
    if year == 2027:  # a planner comes by
        connection.execute("update pgtick.schedules set next_run_at = '2028-06-01 10:00Z'")
    assert value(connection, "select status from pgtick.executions where execution_id = %s", skipped) == "SKIPPED"
    assert value(connection, "select pgtick.explain(%s)", skipped).startswith("It is SKIPPED: ")


def test_explain_says_what_an_id_is_not(connection: Connection) -> None:
    job_id = create(connection)
    finish(connection, job_id, "COMPLETED")
    for id, words in (
        ("yesterday's", "neither the id of an execution"),
        (str(uuid4()), "There is no job"),
        (f"1790000000000000-{uuid4()}", "There is no job"),
        (f"1790000000000000-{job_id}", "has no execution at 2026-09-2"),
    ):
        assert words in value(connection, "select pgtick.explain(%s)", id)


# ── pause, resume, run now ───────────────────────────────────────────────────────────────────────────────────────────


def test_pausing_takes_back_what_was_pending_ahead_and_resuming_leaves_the_next_time_to_the_planner(
    connection: Connection,
) -> None:
    job_id = create(connection, "* * * * *")
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, overlap)"
        " select %s, at, at, 'default', 1, 'skip' "
        " from unnest(array[now() - interval '1 s', now() + interval '20 s']) at",
        [job_id],
    )
    connection.execute(
        "update pgtick.schedules set next_run_at = now() + interval '80 s', runs = 2, zone_version = '2026a'"
    )
    assert value(connection, "select pgtick.pause_job(%s)", job_id) == 1
    standing = (
        "select runs, paused_at is not null, next_run_at < now() + interval '21 s', zone_version from pgtick.schedules"
    )
    assert connection.execute(standing).fetchone() == (1, True, True, "2026a")
    assert value(connection, "select count(*) from pgtick.pending_executions") == 1, "what is due already goes on"

    assert value(connection, "select pgtick.resume_job(%s)", job_id) is True
    assert connection.execute(
        "select paused_at, zone_version, planned_through >= now() - interval '1 s', next_run_at <= now()"
        " from pgtick.schedules"
    ).fetchone() == (None, None, True, True)
    assert value(connection, "select pgtick.resume_job(%s)", job_id) is False


def test_pausing_takes_back_neither_what_was_started_by_hand_nor_what_has_started_once(connection: Connection) -> None:
    job_id = create(connection, "* * * * *")
    connection.execute(
        "insert into pgtick.pending_executions"
        " (job_id, scheduled_at, due_at, user_id, task_key, origin, attempt, losses)"
        " select %s, now() + n * interval '1 s', now() + interval '1 minute', 'default', 1, origin, attempt, losses"
        " from (values (1, null, 0, 0), (2, 'run_now', 0, 0), (3, null, 1, 0), (4, null, 0, 1))"
        " as p (n, origin, attempt, losses)",
        [job_id],
    )
    assert value(connection, "select pgtick.pause_job(%s)", job_id) == 1
    left = connection.execute("select origin, attempt, losses from pgtick.pending_executions order by scheduled_at")
    assert left.fetchall() == [("run_now", 0, 0), (None, 1, 0), (None, 0, 1)]


def test_a_backfill_leaves_out_what_runs_and_is_no_larger_than_it_may_be(connection: Connection) -> None:
    job_id = create(connection)
    claim(connection, job_id)
    runs = value(connection, "select scheduled_at from pgtick.running_executions")
    assert value(connection, "select pgtick.backfill(%s, %s)", job_id, [runs]) == 0
    many = "array(select now() - n * interval '1 s' from generate_series(1, %s) n)"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"^times: "):
        connection.execute(f"select pgtick.backfill(%s, {many})", [job_id, 1001])


def test_no_more_than_a_thousand_coming_runs_are_skipped_and_none_beyond_ten_years(connection: Connection) -> None:
    job_id = create(connection, "* * * * *")
    skip = "select pgtick.skip_run(%s, now() + %s::interval)"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"^at: .* 10 years"):
        connection.execute(skip, [job_id, "11 years"])
    many = "array(select now() + n * interval '1 hour' from generate_series(1, 1000) n)"
    connection.execute(f"update pgtick.schedules set skips = {many}")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"^at: 1000 "):
        connection.execute(skip, [job_id, "2 days 1 s"])


def test_pausing_keeps_what_was_claimed_ahead_from_starting_but_not_what_was_started_by_hand(
    connection: Connection,
) -> None:
    job_id = create(connection, "* * * * *")
    put_claims = (
        "insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority,"
        " attempt, losses, suspect, worker_id, lease_expires_at, origin)"
        " select n, %s, at, at, 'default', 1, 2, 1, 0, false, 1, 'infinity', origin"
        " from (values (1, now() + interval '1 minute', null), (2, now() + interval '2 minutes', 'run_now'),"
        " (3, now() - interval '1 s', null)) as c (n, at, origin)"
    )
    connection.execute(put_claims, [job_id])
    connection.execute("listen pgtick_revoke")
    connection.execute("select pgtick.pause_job(%s)", [job_id])
    revoked = "select array_agg(claim_id) from pgtick.running_executions where revoked_at is not null"
    assert value(connection, revoked) == [1]
    assert [heard.payload for heard in connection.notifies(timeout=5, stop_after=1)] == ["1"]


@pytest.mark.parametrize(("due", "cancelled"), [("now() - interval '1 s'", 0), ("now() + interval '1 minute'", 1)])
def test_a_cancelled_job_counts_what_was_claimed_and_cannot_have_started(
    connection: Connection, due: str, cancelled: int
) -> None:
    job_id = create(connection)
    claim(connection, job_id, due)
    assert value(connection, "select pgtick.cancel_job(%s)", job_id) == cancelled


def test_what_was_claimed_ahead_or_is_over_before_its_time_is_not_planned_again(connection: Connection) -> None:
    job_id = create(connection, "* * * * *")
    create_at = "select date_trunc('minute', now()) + %s::interval"
    claimed, skipped = (value(connection, create_at, each) for each in ("1 hour", "2 hours"))
    connection.execute(
        "insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority,"
        " attempt, losses, suspect, worker_id, lease_expires_at)"
        " values (1, %s, %s, now(), 'default', 1, 2, 1, 0, false, 1, 'infinity')",
        [job_id, claimed],
    )
    connection.execute(
        "insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
        " finished_at) values (%s, %s, 'default', 1, 'CANCELLED', 0, now(), now())",
        [job_id, skipped],
    )
    connection.execute("select pgtick.pause_job(%s)", [job_id])
    connection.execute("select pgtick.resume_job(%s)", [job_id])
    standing = connection.execute("select planned_through, skips from pgtick.schedules").fetchone()
    assert standing == (claimed, [skipped])


def test_a_date_that_passed_while_paused_is_due_when_resumed(connection: Connection) -> None:
    job_id = far_off(connection)
    connection.execute("select pgtick.pause_job(%s)", [job_id])
    connection.execute("update pgtick.schedules set next_run_at = now() - interval '1 day'")
    connection.execute("select pgtick.resume_job(%s)", [job_id])
    assert value(connection, "select next_run_at between now() - interval '5 s' and now() from pgtick.schedules")


def test_run_now_makes_one_more_execution_also_while_paused(connection: Connection) -> None:
    job_id = paused(connection)
    execution_id = value(connection, "select pgtick.run_now(%s)", job_id)
    assert connection.execute(
        "select pgtick.execution_id(scheduled_at, job_id), origin, overlap, due_at <= clock_timestamp()"
        " from pgtick.pending_executions"
    ).fetchone() == (execution_id, "run_now", "wait", True)


# ── retry, reschedule, drain, next runs ──────────────────────────────────────────────────────────────────────────────


def test_retry_failed_starts_what_matches_once_and_leaves_the_final_rows(connection: Connection) -> None:
    jobs = [create(connection) for _ in range(3)]
    finish(connection, jobs[0], "FAILED", "TimeoutError: smtp 50%")
    finish(connection, jobs[1], "FAILED", "ValueError: no")
    finish(connection, jobs[2], "COMPLETED")
    later = "now() + interval '1 minute'"
    assert value(connection, f"select pgtick.retry_failed(error => 'smtp 50%%', until => {later})") == 1
    assert value(connection, "select job_id from pgtick.pending_executions") == jobs[0]
    assert value(connection, f"select pgtick.retry_failed('send_email', max_count => 10, until => {later})") == 1
    assert value(connection, f"select pgtick.retry_failed(until => {later})") == 0, "none twice"
    assert value(connection, "select count(*) from pgtick.finished_executions where status = 'FAILED'") == 2
    assert {origin[:9] for (origin,) in connection.execute("select origin from pgtick.pending_executions")} == {
        "retry of "
    }


def test_a_retry_is_made_once_also_while_it_runs_and_when_it_is_over(connection: Connection) -> None:
    retry = "select pgtick.retry_failed(until => now() + interval '1 minute')"
    runs, over = failed(connection), failed(connection)
    assert value(connection, retry) == 2
    claim(connection, runs)
    finish(connection, over, "COMPLETED")
    assert value(connection, retry) == 0


def test_retry_failed_leaves_cancelled_jobs_and_other_times_alone(connection: Connection) -> None:
    job_id = failed(connection)
    assert value(connection, "select pgtick.retry_failed(until => now() - interval '1 hour')") == 0
    connection.execute("select pgtick.cancel_job(%s)", [job_id])
    assert value(connection, "select pgtick.retry_failed(until => now() + interval '1 minute')") == 0


@pytest.mark.parametrize("to", ["2026-12-24T18:00:00Z", "2035-12-24T18:00:00Z"])
@pytest.mark.parametrize("schedule", ["now", "2035-01-01T00:00:00Z"])
def test_reschedule_moves_a_job_that_has_not_started(connection: Connection, schedule: str, to: str) -> None:
    job_id = create(connection, schedule)
    execution_id = value(connection, "select pgtick.reschedule(%s, greatest(%s::timestamptz, now()))", job_id, to)
    found = connection.execute("select execution_id, status from pgtick.executions").fetchall()
    assert found == [(execution_id, "PENDING")]
    assert value(connection, "select schedule_type from pgtick.jobs") == "DATE"


def test_drain_worker_by_id_name_or_host(connection: Connection) -> None:
    for name in ("host:1", "host:2", "hostess:3"):
        start_worker(connection, name=name)
    assert value(connection, "select pgtick.drain_worker('1')") == 1
    assert value(connection, "select pgtick.drain_worker('host:2')") == 1
    assert value(connection, "select pgtick.drain_worker('host')") == 2
    asked = connection.execute(
        "select name from pgtick.workers where drain_requested_at is not null order by 1"
    ).fetchall()
    assert asked == [("host:1",), ("host:2",)]


def test_next_runs_in_order_of_time(connection: Connection) -> None:
    soon, later = create(connection), planned(connection)
    connection.execute("update pgtick.pending_executions set due_at = now() + interval '1 hour'")
    found = connection.execute("select job, state, task_id from pgtick.next_runs()").fetchall()
    assert found == [(soon, "PENDING", "send_email"), (later, "PLANNED", "send_email")]
    assert connection.execute("select job from pgtick.next_runs(%s, 1)", [later]).fetchall() == [(later,)]


# ── validation and audit ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("pause_job(gen_random_uuid())", "job_id"),
        ("pause_job(null)", "job_id"),
        ("resume_job(gen_random_uuid())", "job_id"),
        ("run_now(gen_random_uuid())", "job_id"),
        ("reschedule(gen_random_uuid(), now())", "job_id"),
        ("reschedule((select job_id from pgtick.jobs), 'infinity')", "at"),
        ("reschedule((select job_id from pgtick.jobs), null)", "at"),
        ("retry_failed('no_such_task')", "task_id"),
        ("retry_failed(max_count => 0)", "max_count"),
        ("retry_failed(since => now(), until => now())", "since"),
        ("drain_worker('nobody')", "worker"),
        ("pause_job((select job_id from pgtick.jobs))", "job_id"),
    ],
)
def test_what_cannot_be_done_is_refused_naming_the_field_and_changes_nothing(
    connection: Connection, call: str, field: str
) -> None:
    create(connection)
    with pytest.raises(psycopg.Error, match=f"^{field}: "):
        connection.execute(f"select pgtick.{call}")
    assert value(connection, "select count(*) from pgtick.audit_log") == 0


def test_a_cancelled_job_cannot_be_run(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="was cancelled"):
        connection.execute("select pgtick.run_now(%s)", [cancelled(connection)])


def test_every_deed_is_in_the_audit_log(connection: Connection) -> None:
    start_worker(connection)
    once, daily = create(connection), create(connection, "0 10 * * *")
    with connection.transaction():
        connection.execute("set local pgtick.user_id = 'ann'")
        connection.execute("select pgtick.reschedule(%s, now() + interval '1 hour')", [once])
        connection.execute("select pgtick.pause_job(%s, 'holidays')", [daily])
        connection.execute("select pgtick.resume_job(%s)", [daily])
        connection.execute("select pgtick.run_now(%s)", [daily])
        connection.execute("select pgtick.retry_failed()")
        connection.execute("select pgtick.drain_worker('host')")
    connection.execute("select pgtick.cancel_job(%s)", [once])
    found = connection.execute(
        "select action, subject, user_id, db_user from pgtick.audit_log order by entry_id"
    ).fetchall()
    assert [row[0] for row in found] == [
        "reschedule",
        "pause",
        "resume",
        "run_now",
        "retry_failed",
        "drain_worker",
        "cancel",
    ]
    assert [row[1] for row in found[:3]] == [str(once), str(daily), str(daily)]
    assert {row[2] for row in found[:6]} == {"ann"}
    assert {row[3] for row in found} == {connection.info.user}


def test_functions_mean_their_own_tables_whatever_the_search_path(connection: Connection) -> None:
    job_id = create(connection, "0 10 * * *")
    connection.execute("create schema trap")
    connection.execute("create table trap.jobs (job_id uuid)")
    connection.execute(
        "create function trap.now() returns timestamptz language sql as $$ select '-infinity'::timestamptz $$"
    )
    connection.execute("set search_path = trap, pg_catalog")
    connection.execute("select pgtick.pause_job(%s)", [job_id])
    connection.execute("select pgtick.resume_job(%s)", [job_id])
    assert value(connection, "select next_run_at > '-infinity' from pgtick.schedules")
    unsafe = connection.execute(
        "select proname from pg_catalog.pg_proc where pronamespace = 'pgtick'::regnamespace and prokind = 'f' and"
        # Bodies in SQL-standard form were parsed once, when they were made.
        " prosqlbody is null and not coalesce(proconfig::text like '%search_path=pg_catalog, pg_temp%', false)"
    ).fetchall()
    assert unsafe == []
