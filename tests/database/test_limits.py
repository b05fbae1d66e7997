"""What waits and runs while the limits of its task are set and lifted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.domain.limits import Limits
from tests.support.waiting import eventually
from tests.support.working import TASK, Bench
from workers.claimer import RECHECK_S
from workers.execution import Failed

Connection = psycopg.Connection[Any]

LIMIT = "update pgtick.tasks set max_concurrent = 1, priority = priority + 4; select pgtick.apply_limits('{1}')"
LIFT = "update pgtick.tasks set max_concurrent = null, priority = priority - 4; select pgtick.apply_limits('{1}')"
HELD = """
    select (select count(*) from pgtick.pending_executions where abs(priority) > 4 or limit_key is not null)
         + (select count(*) from pgtick.running_executions where priority > 4 or limit_key is not null)
         + (select count(*) from pgtick.schedules where priority > 4)
"""


def put(connection: Connection, priority: int, limit_key: str | None = None, task_key: int = 1) -> None:
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority, limit_key)"
        " select pgtick.uuid7(), now(), now(), 'default', %s, %s, %s",
        [task_key, priority, limit_key],
    )


def value(connection: Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    return row and row[0]


def test_of_a_limit_that_is_lifted_nothing_is_left(connection: Connection, bench: Bench) -> None:
    connection.execute(LIMIT)
    put(connection, 2, limit_key="")
    (running,) = bench.claim()
    put(connection, 6)  # held back
    put(connection, -6)  # waits for the run before it
    put(connection, 2, limit_key="")  # let in
    connection.execute("select pgtick.create_job('noop', '* * * * *')")
    assert value(connection, HELD) == 5
    connection.execute(LIFT)
    assert value(connection, HELD) == 0
    bench.report((running, Failed("once")))
    assert value(connection, HELD) == 0
    assert value(connection, "select count(*) from pgtick.pending_executions where priority = 2") == 3
    assert len(bench.claim()) == 2, "all but the retry and the one that waits for a run"


def test_another_key_counts_for_what_waits_already(connection: Connection, bench: Bench) -> None:
    keyed = "update pgtick.tasks set priority = 6, max_per_key = 1, concurrency_key = %s"
    admit = "select admitted from pgtick.admit(1, now() + interval '1 minute', 10)"
    connection.execute(keyed, ["customer"])
    for city in ("Oslo", "Rome"):
        connection.execute("select pgtick.create_job('noop', parameters => %s)", [Jsonb({"customer": 7, "city": city})])
    assert value(connection, admit) == 1, "one customer"
    assert value(connection, admit) == 0
    connection.execute(keyed, ["city"])
    assert value(connection, "select pgtick.apply_limits('{1}', '{1}')") is not None
    assert value(connection, admit) == 1, "another city"


def test_what_comes_in_while_a_limit_is_lifted_is_let_go_by_the_janitor(connection: Connection) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) values ('free', 'x'), ('limited', 'x')")
    connection.execute("update pgtick.tasks set max_concurrent = 1, priority = 6 where task_id = 'limited'")
    put(connection, 7)
    for _ in range(2):
        put(connection, 6, task_key=2)
    assert value(connection, "select pgtick.free_unlimited()") == 1
    found = connection.execute("select task_key, priority from pgtick.pending_executions order by 1, 2").fetchall()
    assert found == [(1, 3), (2, 6), (2, 6)]
    assert value(connection, "select pgtick.free_unlimited()") == 0


def test_a_limit_holds_for_what_runs_already_from_its_retry_on(connection: Connection, bench: Bench) -> None:
    put(connection, 2)
    (running,) = bench.claim()
    connection.execute(LIMIT)
    bench.report((running, Failed("once")))
    assert connection.execute("select priority, limit_key from pgtick.pending_executions").fetchall() == [(6, None)]


@pytest.mark.parametrize("overlap", [None, "skip"])
def test_the_retry_of_what_a_limit_let_in_is_held_back_again(
    connection: Connection, bench: Bench, overlap: str | None
) -> None:
    connection.execute(LIMIT)
    put(connection, 2, limit_key="")
    connection.execute("update pgtick.pending_executions set overlap = %s", [overlap])
    (running,) = bench.claim()
    bench.report((running, Failed("once")))
    assert connection.execute("select priority, limit_key from pgtick.pending_executions").fetchall() == [(6, None)]


def test_what_waits_for_a_run_of_its_job_leaves_its_place_in_the_limit_to_others(
    connection: Connection, bench: Bench
) -> None:
    connection.execute(LIMIT)
    connection.execute("update pgtick.tasks set max_concurrent = 2")
    bench.tasks = {1: replace(TASK, limits=Limits(max_concurrent=2))}
    job = value(connection, "select pgtick.create_job('noop', '* * * * *')")
    for _ in range(5):
        connection.execute("select pgtick.run_now(%s)", [job])
    other = value(connection, "select pgtick.create_job('noop')")
    bench.clock.time = value(connection, "select extract(epoch from clock_timestamp())::float8")
    assert [UUID(execution.job_id) for execution in bench.claim()] == [job]
    assert bench.pause == RECHECK_S, "there may be others for the place"
    assert [UUID(execution.job_id) for execution in bench.claim(ticks=5)] == [other]
    waiting = "select distinct priority, limit_key from pgtick.pending_executions"
    assert connection.execute(waiting).fetchall() == [(-6, None)]


@pytest.mark.parametrize("limited", [False, True])
def test_what_waits_is_gone_through_once_however_many_tasks_a_worker_brings(
    connection: Connection, limited: bool
) -> None:
    connection.execute("insert into pgtick.tasks (task_id, target) select 't' || n, 'x' from generate_series(1, 10) n")
    if limited:
        connection.execute("update pgtick.tasks set max_concurrent = 1, priority = 6")
    for task_key in range(1, 11):
        for _ in range(20):
            put(connection, 6 if limited else 2, task_key=task_key)
    with connection.transaction():
        connection.execute("set local enable_indexscan = off")
        connection.execute("set local enable_bitmapscan = off")
        assert value(connection, "select pgtick.apply_limits(array(select task_key from pgtick.tasks))") == 0
        read = "select sum(seq_tup_read) from pg_stat_xact_user_tables where relname like 'pending_executions%'"
        assert value(connection, read) == 200


def test_a_rate_goes_on_when_the_clock_was_set_back(connection: Connection, bench: Bench) -> None:
    connection.execute("update pgtick.tasks set rate_per_s = 10, priority = 6; select pgtick.apply_limits('{1}')")
    hour_ahead = "extract(epoch from clock_timestamp() + interval '1 hour') * 1000000"
    connection.execute(f"select setval('pgtick.rate_of_task_1', ({hour_ahead})::bigint)")
    for _ in range(3):
        put(connection, 6)
    assert value(connection, "select admitted from pgtick.admit(1, now(), 10)") == 1, "no more than the rate"
    eventually(lambda: value(connection, "select admitted from pgtick.admit(1, clock_timestamp(), 10)"))
