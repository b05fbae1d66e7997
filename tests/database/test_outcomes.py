"""How an execution goes from claim to end, with the clock as a parameter."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from app import events
from app.domain.retry import Backoff
from tests.support.working import TASK, Bench
from workers.execution import Completed, Ended, Execution, Failed, Outcome, Released, Snoozed

Connection = psycopg.Connection[Any]


def create(connection: Connection, task_id: str = "noop", **options: Any) -> Any:
    names = "".join(f", {name} => %({name})s" for name in options)
    row = connection.execute(
        f"select pgtick.create_job(%(task_id)s{names})", {"task_id": task_id, **options}
    ).fetchone()
    assert row is not None
    return row[0]


def state(connection: Connection, job_id: Any) -> tuple[Any, ...]:
    row = connection.execute(
        "select status, attempt, error from pgtick.executions where job_id = %s", [job_id]
    ).fetchone()
    assert row is not None
    return row


def fail(bench: Bench, message: str = "RuntimeError: no") -> None:
    (execution,) = bench.claim()
    bench.report((execution, Failed(message)))


def test_success_is_final_and_keeps_its_result(bench: Bench, connection: Connection) -> None:
    job_id = create(connection)
    (execution,) = bench.claim()
    assert state(connection, job_id) == ("IN_PROGRESS", 1, None)
    bench.report((execution, Completed('{"sent": true}')))
    assert state(connection, job_id) == ("COMPLETED", 1, None)
    assert connection.execute("select result from pgtick.executions").fetchone() == ({"sent": True},)
    assert bench.claims == {}


def test_a_failure_is_tried_again_after_5_25_and_125_seconds_and_then_final(
    bench: Bench, connection: Connection
) -> None:
    job_id = create(connection)
    for attempt, pause in [(1, 5), (2, 25), (3, 125)]:
        fail(bench, f"RuntimeError: number {attempt}")
        assert state(connection, job_id) == ("RETRYING", attempt, f"RuntimeError: number {attempt}")
        due = connection.execute("select extract(epoch from due_at)::float8 from pgtick.pending_executions").fetchone()
        assert due is not None
        assert due[0] == pytest.approx(bench.clock.time + pause, abs=1e-5)
        bench.clock.time += pause - 0.6
        assert bench.claim() == [], "before its time"
        bench.clock.time += 0.6
    fail(bench, "RuntimeError: number 4")
    assert state(connection, job_id) == ("FAILED", 4, "RuntimeError: number 4")
    errors = connection.execute("select errors from pgtick.executions").fetchone()
    assert errors is not None
    assert [(e["attempt"], e["error"]) for e in errors[0]] == [(n, f"RuntimeError: number {n}") for n in (1, 2, 3, 4)]


def test_a_success_after_failures_keeps_their_errors(bench: Bench, connection: Connection) -> None:
    job_id = create(connection)
    fail(bench)
    bench.clock.time += 5
    (execution,) = bench.claim()
    bench.report((execution, Completed()))
    assert state(connection, job_id)[:2] == ("COMPLETED", 2)
    assert connection.execute("select jsonb_array_length(errors) from pgtick.executions").fetchone() == (1,)


def test_a_job_can_have_fewer_retries_than_its_task(bench: Bench, connection: Connection) -> None:
    job_id = create(connection, max_retries=0)
    fail(bench)
    assert state(connection, job_id)[:2] == ("FAILED", 1)


def test_a_failure_that_is_final_is_not_tried_again(bench: Bench, connection: Connection) -> None:
    job_id = create(connection)
    (execution,) = bench.claim()
    bench.report((execution, Failed("the parameters cannot be read", final=True)))
    assert state(connection, job_id) == ("FAILED", 1, "the parameters cannot be read")


def test_a_released_execution_is_not_charged(bench: Bench, connection: Connection) -> None:
    job_id = create(connection)
    (execution,) = bench.claim()
    bench.report((execution, Released()))
    assert state(connection, job_id)[:2] == ("PENDING", 0)


@pytest.mark.parametrize("status", ["CANCELLED", "SKIPPED"])
def test_an_execution_can_end_without_having_run(bench: Bench, connection: Connection, status: str) -> None:
    job_id = create(connection)
    (execution,) = bench.claim()
    bench.report((execution, Ended(status, "because", charged=False)))
    assert state(connection, job_id) == (status, 0, "because")


def test_an_outcome_after_the_lease_was_lost_does_not_count(bench: Bench, connection: Connection) -> None:
    job_id = create(connection)
    (late,) = bench.claim()
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")
    bench.recover()
    (taken_over,) = bench.claim()
    bench.report((late, Completed('"late"')))
    assert state(connection, job_id)[0] == "IN_PROGRESS"
    bench.report((taken_over, Completed('"right"')))
    row = connection.execute("select status, result, attempt, losses from pgtick.executions").fetchone()
    assert row == ("COMPLETED", "right", 1, 1)


def test_one_outcome_that_cannot_be_stored_does_not_hold_up_the_others(bench: Bench, connection: Connection) -> None:
    good, bad = create(connection), create(connection)
    executions = {UUID(execution.job_id): execution for execution in bench.claim()}
    bench.report((executions[bad], Completed("no json")), (executions[good], Completed()))
    assert state(connection, good)[0] == "COMPLETED"
    status, _, error = state(connection, bad)
    assert status == "FAILED"
    assert "could not be stored" in error


def test_an_execution_whose_hour_was_dropped_still_ends(bench: Bench, connection: Connection) -> None:
    job_id = create(connection)
    (execution,) = bench.claim()
    for (name,) in connection.execute(
        "select partition from pgtick.partitions where parent = 'finished_executions' and from_at <= now()"
    ).fetchall():
        connection.execute(f"drop table pgtick.{name}")
    connection.execute(
        "update pgtick.partition_windows set from_at = date_trunc('hour', now()) + interval '1 hour'"
        " where parent = 'finished_executions'"
    )
    bench.report((execution, Completed()))
    assert state(connection, job_id)[0] == "COMPLETED"


def age(connection: Connection, job_id: Any) -> None:
    """As if an execution were for a time whose hour of history is gone, or never was."""
    for table in ("pending_executions", "running_executions"):
        connection.execute(f"update pgtick.{table} set scheduled_at = '2020-01-01 00:00Z' where job_id = %s", [job_id])


def test_what_is_older_than_history_ends_at_the_beginning_of_it(bench: Bench, connection: Connection) -> None:
    old, older, new = create(connection), create(connection), create(connection)
    age(connection, old)
    age(connection, older)
    # Another one of the same job, a second later.
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
        " select job_id, scheduled_at + interval '1 s', due_at, user_id, task_key from pgtick.pending_executions"
        " where job_id = %s",
        [old],
    )
    begins = "select from_at from pgtick.partition_windows where parent = 'finished_executions'"
    before = connection.execute(begins).fetchone()
    bench.report(*((execution, Completed()) for execution in bench.claim()))
    assert connection.execute(begins).fetchone() == before
    found = connection.execute("select job_id, status from pgtick.executions").fetchall()
    assert sorted(found) == sorted((job_id, "COMPLETED") for job_id in (old, old, older, new))
    apart = "select max(scheduled_at) - min(scheduled_at) from pgtick.finished_executions where job_id = %s"
    assert connection.execute(apart, [old]).fetchone() == (timedelta(microseconds=1),)


def test_what_is_older_than_history_can_be_cancelled(bench: Bench, connection: Connection) -> None:
    whole, one = create(connection), create(connection)
    age(connection, whole)
    age(connection, one)
    connection.execute("select pgtick.cancel_job(%s)", [whole])
    connection.execute("select pgtick.cancel_execution(%s, '2020-01-01 00:00Z')", [one])
    assert state(connection, whole)[0] == state(connection, one)[0] == "CANCELLED"


def test_what_is_older_than_history_is_recovered(bench: Bench, connection: Connection) -> None:
    old, new = create(connection, max_retries=0), create(connection)
    bench.claim()
    age(connection, old)
    connection.execute(
        "update pgtick.running_executions set suspect = job_id = %s, lease_expires_at = now() - interval '1 s'", [old]
    )
    bench.recover()
    assert (state(connection, old)[0], state(connection, new)[0]) == ("FAILED", "PENDING")


def test_one_lease_that_cannot_be_recovered_does_not_hold_up_the_others(bench: Bench, connection: Connection) -> None:
    good, bad = create(connection), create(connection)
    bench.claim()
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")
    connection.execute("update pgtick.running_executions set priority = 99 where job_id = %s", [bad])
    before = events.counts.get("lease_unrecoverable", 0)
    bench.recover()
    assert (state(connection, good)[0], state(connection, bad)[0]) == ("PENDING", "IN_PROGRESS")
    assert events.counts["lease_unrecoverable"] == before + 1


def test_what_is_handed_back_after_its_hour_was_dropped_waits_in_the_oldest(
    bench: Bench, connection: Connection
) -> None:
    jobs = [create(connection) for _ in range(3)]
    released, failed, snoozed = bench.claim()
    connection.execute("update pgtick.running_executions set due_at = due_at - interval '9 hours'")
    bench.clock.time -= 10 * 3600  # when the last two ended, and nobody could be told
    bench.report((released, Released()), (failed, Failed("RuntimeError: no")), (snoozed, Snoozed(1.0)))
    assert {state(connection, job_id)[0] for job_id in jobs} == {"PENDING", "RETRYING"}
    bench.clock.time += 10 * 3600
    assert len(bench.claim()) == 3


def test_attempts_that_cannot_be_counted_on_are_kept_out(bench: Bench, connection: Connection) -> None:
    create(connection)
    for column in ("attempt", "losses"):
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(f"update pgtick.pending_executions set {column} = 32767")
    connection.execute("update pgtick.pending_executions set attempt = 32000, losses = 32000")
    assert len(bench.claim()) == 1
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")
    bench.recover()
    assert len(bench.claim()) == 1


def test_claims_only_what_the_worker_knows_and_what_is_due(bench: Bench, connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('other', 'y')")
    known, _unknown = create(connection), create(connection, "other")
    create(connection, schedule="2036-01-01T00:00:00Z")
    assert [UUID(execution.job_id) for execution in bench.claim()] == [known]
    assert bench.claim() == []


def test_claims_no_more_than_there_are_places(bench: Bench, connection: Connection) -> None:
    for _ in range(5):
        create(connection)
    assert len(bench.claim(capacity=3)) == 3
    assert len(bench.claim(capacity=3)) == 2


def test_claims_urgent_tasks_first_then_the_oldest(bench: Bench, connection: Connection) -> None:
    jobs = [create(connection) for _ in range(4)]
    connection.execute("update pgtick.pending_executions set priority = 1 where job_id = %s", [jobs[3]])
    connection.execute("update pgtick.pending_executions set priority = 4 where job_id = %s", [jobs[0]])
    assert [[UUID(e.job_id) for e in bench.claim(capacity=1)] for _ in range(4)] == [[jobs[n]] for n in (3, 1, 2, 0)]


def test_an_overlapping_occurrence_is_skipped_with_its_reason(bench: Bench, connection: Connection) -> None:
    job_id = create(connection)
    connection.execute("update pgtick.pending_executions set overlap = 'skip'")
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, overlap)"
        " select job_id, scheduled_at - interval '1 s', due_at - interval '1 s', user_id, task_key, overlap"
        " from pgtick.pending_executions"
    )
    (first,) = bench.claim()
    found = connection.execute(
        "select status, error from pgtick.executions where job_id = %s order by scheduled_at", [job_id]
    )
    assert found.fetchall() == [("IN_PROGRESS", None), ("SKIPPED", "the run before it was not over (overlap: skip)")]
    bench.report((first, Completed()))


def test_the_first_loss_is_not_charged_and_makes_a_suspect(bench: Bench, connection: Connection) -> None:
    create(connection)
    bench.claim()
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")
    bench.recover()
    row = connection.execute("select attempt, losses, suspect from pgtick.pending_executions").fetchone()
    assert row == (0, 1, True)


def test_losses_of_a_suspect_are_charged_until_it_has_failed(bench: Bench, connection: Connection) -> None:
    job_id = create(connection)
    for _ in range(5):
        execution: list[Execution] = bench.claim()
        assert len(execution) == 1
        connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")
        bench.recover()
        bench.clock.time += 1
    assert state(connection, job_id)[:2] == ("FAILED", 4)
    assert bench.claim() == []


def test_the_backoff_is_the_tasks_choice(bench: Bench, connection: Connection) -> None:
    bench.tasks[1] = replace(TASK, backoff=Backoff(base_s=2, factor=1, cap_s=60))
    create(connection)
    fail(bench)
    bench.clock.time += 2
    assert len(bench.claim()) == 1


def test_a_report_that_cannot_even_be_written_down_fails_alone(bench: Bench, connection: Connection) -> None:
    jobs = [create(connection) for _ in range(3)]
    by_job = {str(execution.job_id): execution for execution in bench.claim()}
    first, broken, last = (by_job[str(job)] for job in jobs)
    nonsense: Any = "soon"
    bench.report((first, Completed()), (broken, Failed("no", after_s=nonsense)), (last, Completed()))
    assert [state(connection, job)[0] for job in jobs] == ["COMPLETED", "FAILED", "COMPLETED"]
    assert state(connection, jobs[1])[2].startswith("no; the outcome could not be stored: ")
    assert bench.claims == {}


def test_what_was_to_stop_is_cancelled_however_its_run_ends(bench: Bench, connection: Connection) -> None:
    for _ in range(8):
        create(connection)
    executions = sorted(bench.claim(), key=lambda execution: execution.claim_id)
    for first, column in ((0, "cancel_requested_at"), (1, "revoked_at")):
        claims = [execution.claim_id for execution in executions[first::2]]
        stop = f"update pgtick.running_executions set {column} = now() where claim_id = any (%s)"
        connection.execute(stop, [claims])
    *ended, lost, lost_too = executions
    outcomes: list[Outcome] = [outcome for outcome in (Failed("no"), Released(), Snoozed(60.0)) for _ in range(2)]
    bench.report(*zip(ended, outcomes, strict=True))
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")
    bench.recover()
    found = connection.execute("select job_id::text, status, attempt from pgtick.executions").fetchall()
    attempts = {e.job_id: isinstance(o, Failed) for e, o in zip(ended, outcomes, strict=True)}
    attempts |= {lost.job_id: False, lost_too.job_id: False}
    assert sorted(found) == sorted((job_id, "CANCELLED", int(charged)) for job_id, charged in attempts.items())


def test_what_started_in_time_and_was_handed_back_has_no_deadline_any_more(
    bench: Bench, connection: Connection
) -> None:
    started, ahead = create(connection), create(connection)
    connection.execute("update pgtick.pending_executions set expires_at = '2100-01-01Z'")
    executions = bench.claim()
    connection.execute(
        "update pgtick.running_executions set due_at = now() + interval '10 minutes' where job_id = %s", [ahead]
    )
    bench.report(*((execution, Released()) for execution in executions))
    found = connection.execute("select job_id, expires_at is null from pgtick.pending_executions").fetchall()
    assert dict(found) == {started: True, ahead: False}


def test_what_is_handed_back_is_looked_for_by_others_at_once(bench: Bench, connection: Connection) -> None:
    create(connection)
    (execution,) = bench.claim()
    connection.execute("listen pgtick_due")
    bench.report((execution, Released()))
    heard = [notification.payload for notification in connection.notifies(timeout=5, stop_after=1)]
    assert heard == [str(execution.scheduled_us)]


def test_a_final_row_put_in_by_hand_stands(bench: Bench, connection: Connection) -> None:
    by_hand, other = create(connection), create(connection)
    executions = bench.claim()
    connection.execute(
        "insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
        " finished_at, error) select job_id, scheduled_at, user_id, task_key, 'FAILED', 1, due_at, now(), 'by hand'"
        " from pgtick.running_executions where job_id = %s",
        [by_hand],
    )
    bench.report(*((execution, Completed()) for execution in executions))
    found = connection.execute("select job_id, status, error from pgtick.executions").fetchall()
    assert sorted(found) == sorted([(by_hand, "FAILED", "by hand"), (other, "COMPLETED", None)])
    assert bench.claims == {}


def test_an_outcome_that_cannot_be_stored_in_any_way_is_left_to_the_janitor(
    bench: Bench, connection: Connection
) -> None:
    refused, other = create(connection), create(connection)
    executions = bench.claim()
    connection.execute(
        "create function public.refuse() returns trigger language plpgsql as $$ begin raise data_exception; end $$"
    )
    connection.execute(
        "create trigger refuse before insert on pgtick.finished_executions for each row"
        f" when (new.job_id = '{refused}') execute function public.refuse()"
    )
    bench.report(*((execution, Completed()) for execution in executions))
    assert state(connection, other)[0] == "COMPLETED"
    left = "select job_id, worker_id, lease_expires_at <= clock_timestamp() from pgtick.running_executions"
    assert connection.execute(left).fetchall() == [(refused, 0, True)]
    assert bench.claims == {}
