"""Failures are tried again, keep their errors, and end; whatever a task returns or raises can be stored."""

from __future__ import annotations

import itertools

import pytest

from tests.support.processes import Fleet


def test_a_failing_task_is_tried_again_and_fails_with_every_error_kept(shared: Fleet) -> None:
    job = shared.post("failing", parameters={"message": "no such customer"})
    retrying = shared.until(job, "RETRYING")
    assert retrying["error"] == "RuntimeError: no such customer"
    failed = shared.until(job, "FAILED")
    assert failed["attempt"] == 4
    assert [e["attempt"] for e in failed["errors"]] == [1, 2, 3, 4]
    assert {e["error"] for e in failed["errors"]} == {"RuntimeError: no such customer"}
    starts = [e["at"] for e in shared.ledger.starts(job)]
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert all(pause >= due for pause, due in zip(pauses, [0.2, 0.4, 0.8], strict=True)), pauses


def test_the_back_off_of_many_retries_is_capped_and_never_overflows(shared: Fleet) -> None:
    job = shared.post("failing_for_long")
    shared.until(job, "RETRYING")
    shared.connection.execute(
        "update pgtick.pending_executions set attempt = 29, due_at = now() where job_id = %s", [job]
    )
    shared.eventually("select attempt = 30 from pgtick.executions where job_id = %s and status = 'RETRYING'", [job])
    pause = "select extract(epoch from due_at - now())::float8 from pgtick.executions where job_id = %s"
    assert 86_000 < shared.value(pause, [job]) <= 86_400


@pytest.mark.parametrize("task", ["raise_nasty", "return_nasty"])
def test_what_postgresql_cannot_store_is_made_storable(shared: Fleet, task: str) -> None:
    job = shared.post(task)
    if task == "raise_nasty":
        assert shared.until(job, "FAILED")["error"] == "RuntimeError: a\ufffdb \ufffd c"
    else:
        assert shared.until(job, "COMPLETED")["result"] == {
            "nul": "a\ufffdb",
            "surrogate": "a\ufffdb",
            "both": {"k\ufffd": ["\ufffd"]},
            "fine": "grüße 🎉",
            "escaped": "\\u0000",
        }


@pytest.mark.parametrize(
    ("task", "parameters", "error"),
    [
        ("return_deep", {"depth": 5000}, "its result is not JSON: RecursionError"),
        ("return_large", {"mib": 5}, "its result is too large"),
        ("return_object", {}, "its result is not JSON: TypeError"),
    ],
)
def test_a_result_that_cannot_be_stored_fails_without_running_again(
    shared: Fleet, task: str, parameters: dict[str, int], error: str
) -> None:
    job = shared.post(task, parameters=parameters)
    failed = shared.until(job, "FAILED")
    assert failed["error"].startswith(error)
    assert len(shared.ledger.starts(job)) == 1


def test_a_row_that_cannot_be_read_fails_alone(shared: Fleet) -> None:
    shared.change_tables(
        "alter table pgtick.pending_executions drop constraint if exists pending_executions_times_are_sane"
    )
    neighbours = [shared.post("quick") for _ in range(5)]
    deep = shared.value(
        "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, run_at, parameters)"
        " values (pgtick.uuid7(), 'default', 'quick', 'NOW', now(),"
        "  ('{\"a\": ' || repeat('[', 1500) || repeat(']', 1500) || '}')::jsonb) returning job_id"
    )
    endless = shared.value(
        "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, run_at)"
        " values (pgtick.uuid7(), 'default', 'quick', 'NOW', now()) returning job_id"
    )
    orphan = shared.value("select pgtick.uuid7()")
    shared.connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
        " select job_id, at::timestamptz, now(), 'default', task_key from pgtick.tasks,"
        " (values (%s::uuid, now()::text), (%s, 'infinity'), (%s, now()::text)) as v (job_id, at)"
        " where task_id = 'quick'",
        [deep, endless, orphan],
    )
    assert shared.until(deep, "FAILED")["error"].startswith("the parameters cannot be read: RecursionError")
    assert shared.until(endless, "FAILED")["error"] == "its scheduled_at is infinite"
    assert shared.until(orphan, "FAILED")["error"] == "the job's row is gone"
    for job in neighbours:
        shared.until(job, "COMPLETED")
