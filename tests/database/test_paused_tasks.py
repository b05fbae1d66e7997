"""What waits, retries and comes in while a task is paused, with and without limits."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from app.clock import Clock
from app.settings import Settings
from tests.support.api import Api
from tests.support.waiting import eventually
from tests.support.working import TASK, Bench
from workers.execution import Failed
from workers.presence import register

Connection = psycopg.Connection[Any]

LIMIT = "update pgtick.tasks set max_concurrent = 1, priority = priority + 4; select pgtick.apply_limits('{1}')"
ADMIT = "select admitted from pgtick.admit(1, now() + interval '1 minute', 10)"


def value(connection: Connection, query: str, *parameters: Any) -> Any:
    row = connection.execute(query, parameters).fetchone()
    return row and row[0]


def pause(connection: Connection) -> int:
    return int(value(connection, "select pgtick.pause_task('noop', 'mail server moves')"))


def resume(connection: Connection) -> bool:
    return bool(value(connection, "select pgtick.resume_task('noop')"))


def create(connection: Connection, schedule: str = "now") -> Any:
    return value(connection, "select pgtick.create_job('noop', %s)", schedule)


def test_nothing_of_a_paused_task_is_claimed_and_all_of_it_when_it_is_resumed(
    connection: Connection, bench: Bench
) -> None:
    create(connection)
    (running,) = bench.claim()
    create(connection)
    create(connection, "* * * * * *")
    bench.plan()
    pause(connection)
    create(connection)
    create(connection, "* * * * * *")
    bench.report((running, Failed("once")))
    bench.plan()
    connection.execute("update pgtick.pending_executions set due_at = now() - interval '1 s'")
    assert bench.claim() == []
    waiting = value(connection, "select count(*) from pgtick.pending_executions where overlap is null")
    assert waiting == 3, "two posted and a retry"
    assert resume(connection)
    taken = bench.claim()
    assert {running.job_id} < {execution.job_id for execution in taken}
    assert len({execution.job_id for execution in taken}) == 5


def test_pausing_and_resuming_twice_changes_nothing_the_second_time(connection: Connection, bench: Bench) -> None:
    assert not resume(connection)
    create(connection)
    assert pause(connection) == pause(connection) == 1
    note = "select paused_note from pgtick.tasks"
    assert value(connection, "select pgtick.pause_task('noop')") == 1
    assert value(connection, note) == "mail server moves"
    assert resume(connection)
    assert not resume(connection)
    assert value(connection, note) is None
    assert len(bench.claim()) == 1
    entries = connection.execute("select action, details from pgtick.audit_log order by entry_id").fetchall()
    assert [action for action, _ in entries] == ["pause_task"] * 3 + ["resume_task"]
    assert entries[0][1] == {"note": "mail server moves", "held": 1}


@pytest.mark.parametrize("verb", ["pause_task", "resume_task"])
def test_a_task_that_nobody_registered_is_refused(connection: Connection, verb: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='task_id: no task "nope" is registered'):
        connection.execute(f"select pgtick.{verb}('nope')")


def test_of_a_task_with_limits_nothing_is_let_in_while_it_is_paused(connection: Connection, bench: Bench) -> None:
    connection.execute(LIMIT)
    create(connection)
    assert value(connection, ADMIT) == 1
    create(connection)
    assert pause(connection) == 2, "what was let in and not claimed is held, too"
    assert value(connection, ADMIT) == 0
    assert bench.claim() == []
    assert resume(connection)
    assert bench.claim() == [], "its limits still hold"
    assert value(connection, ADMIT) == 1
    assert len(bench.claim()) == 1


def test_limits_that_come_and_go_leave_a_task_paused(connection: Connection, bench: Bench) -> None:
    create(connection)
    pause(connection)
    connection.execute("update pgtick.tasks set max_concurrent = 1; select pgtick.apply_limits('{1}')")
    assert value(connection, ADMIT) == 0
    connection.execute("update pgtick.tasks set max_concurrent = null; select pgtick.apply_limits('{1}')")
    assert value(connection, "select pgtick.free_unlimited()") == 0
    assert bench.claim() == []
    assert resume(connection)
    assert len(bench.claim()) == 1


def test_a_worker_that_starts_leaves_a_task_paused(connection: Connection, bench: Bench) -> None:
    create(connection)
    pause(connection)
    urgent = replace(TASK, priority=1)
    asyncio.run(register(Settings(database_url=bench.dsn), Clock(), {"noop": urgent}))
    assert value(connection, "select priority from pgtick.tasks") == 5
    assert value(connection, "select count(*) from pgtick.pending_executions where priority > 4") == 1
    assert resume(connection)
    assert value(connection, "select priority from pgtick.tasks") == 1


MOVES = {
    "planned": (
        "select from pgtick.schedules for update",
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority)"
        " select job_id, now(), now(), user_id, task_key, priority from pgtick.schedules",
    ),
    "claimed": (
        "with gone as (delete from pgtick.pending_executions returning *)"
        " insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority,"
        " attempt, losses, suspect, worker_id, lease_expires_at)"
        " select 1, job_id, scheduled_at, due_at, user_id, task_key, priority, 1, 0, false, 1, now() from gone",
    ),
    "brought back": (
        "with gone as (delete from pgtick.running_executions returning *)"
        " insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, attempt)"
        " select job_id, scheduled_at, due_at, user_id, task_key, priority, attempt from gone",
    ),
}
MOVES_OF_LIMITS = {
    "let in": (ADMIT,),
    "let in, and put back by a claim": (
        ADMIT,
        "commit",
        "with gone as (delete from pgtick.pending_executions returning *)"
        " insert into pgtick.pending_executions select * from gone",
    ),
}
OF_CLAIMS = """
    select array_agg(priority) from (
        select priority from pgtick.pending_executions union all select priority from pgtick.running_executions
        union all select priority from pgtick.schedules) as every
"""


@pytest.mark.parametrize("move", MOVES)
def test_what_is_on_its_way_at_that_moment_is_held_too(connection: Connection, bench: Bench, move: str) -> None:
    create(connection, "0 0 1 1 *" if move == "planned" else "now")
    if move == "brought back":
        bench.claim()
    with psycopg.connect(bench.dsn) as mover, ThreadPoolExecutor() as threads:
        for statement in MOVES[move]:
            mover.execute(statement)
        pausing = threads.submit(pause, connection)
        waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        eventually(lambda: value(mover, waits, connection.info.backend_pid))
        mover.commit()
        pausing.result()
    assert set(value(connection, OF_CLAIMS)) == {6}


@pytest.mark.parametrize("move", MOVES_OF_LIMITS)
def test_what_limits_are_letting_in_at_that_moment_is_held_too(connection: Connection, bench: Bench, move: str) -> None:
    connection.execute(LIMIT)
    create(connection)
    with psycopg.connect(bench.dsn) as mover, ThreadPoolExecutor() as threads:
        for statement in MOVES_OF_LIMITS[move]:
            mover.execute(statement)
        pausing = threads.submit(pause, connection)
        waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        eventually(lambda: pausing.done() or value(mover, waits, connection.info.backend_pid))
        mover.commit()
        pausing.result()
    assert bench.claim() == []
    assert resume(connection)
    assert value(connection, ADMIT) == 1


@pytest.mark.parametrize("set_aside", [LIMIT, "select pgtick.pause_task('noop')"], ids=["limited", "paused"])
def test_a_recurring_job_that_is_posted_at_that_moment_is_held_too(
    connection: Connection, bench: Bench, set_aside: str
) -> None:
    with psycopg.connect(bench.dsn) as poster:
        create(poster, "* * * * * *")
        connection.execute(set_aside)
    bench.plan()
    connection.execute("update pgtick.pending_executions set due_at = now() - interval '1 s'")
    waiting = connection.execute("select distinct priority from pgtick.pending_executions").fetchall()
    assert waiting == [(6,)]


def test_a_pause_and_a_claim_of_a_job_that_runs_wait_for_each_other_in_no_circle(
    connection: Connection, bench: Bench
) -> None:
    create(connection, "* * * * * *")
    bench.plan()
    connection.execute("update pgtick.pending_executions set due_at = now() - interval '1 s'")
    assert len(bench.claim(capacity=1)) == 1
    with psycopg.connect(bench.dsn) as claimer, ThreadPoolExecutor() as threads:
        claimer.execute("select from pgtick.pending_executions for update")
        pausing = threads.submit(pause, connection)
        waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        eventually(lambda: value(claimer, waits, connection.info.backend_pid))
        claimer.execute(
            "insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key,"
            " priority, attempt, losses, suspect, overlap, worker_id, lease_expires_at)"
            " select 1, job_id, scheduled_at, due_at, user_id, task_key, priority, 1, 0, false, overlap, 1, now()"
            " from pgtick.running_executions on conflict (job_id) where overlap is not null do nothing"
        )
        claimer.commit()
        pausing.result()
    priorities = value(connection, OF_CLAIMS)
    assert {abs(priority) for priority in priorities} == {6}


def test_why_it_does_not_run_is_said(connection: Connection, bench: Bench) -> None:
    job_id = create(connection)
    pause(connection)
    sentence = value(connection, "select pgtick.explain(%s::text)", job_id)
    assert sentence.startswith("Task noop is paused since ")
    assert sentence.endswith(" (mail server moves); pgtick.resume_task continues it.")
    connection.execute("update pgtick.pending_executions set due_at = now() - interval '1 minute'")
    assert value(connection, "select count(*) from pgtick.late") == 0


def test_over_rest_a_task_is_paused_and_resumed(api: Api, connection: Connection) -> None:
    def patch(task_id: str = "send_email", **body: Any) -> Any:
        return api.call("PATCH", f"/tasks/{task_id}", json=body)

    paused = patch(paused=True, note="mail server moves").json
    assert paused["paused_note"] == "mail server moves"
    assert paused["paused_at"] is not None
    assert paused["priority"] == 2
    assert api.created(task_id="send_email")["job_id"], "jobs can be posted"
    assert value(connection, "select count(*) from pgtick.pending_executions where priority > 4") == 1
    assert patch(paused=True).json == paused
    assert value(connection, "select user_id from pgtick.audit_log where action = 'pause_task'") == "default"
    for body, pointer in (({}, "/paused"), ({"paused": 1}, "/paused"), ({"paused": False, "note": "x"}, "/note")):
        refused = patch(**body)
        assert (refused.status_code, refused.json["errors"][0]["pointer"]) == (422, pointer)
    assert patch("nope", paused=True).status_code == 404
    resumed = patch(paused=False).json
    assert resumed["paused_at"] is resumed["paused_note"] is None
