"""What a claim takes first, and where it finds it: hours of pending executions are partitions of their own."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from app.clock import Clock
from tests.support import roles
from tests.support.databases import Server
from tests.support.working import Bench
from workers.claimer import Claimer
from workers.execution import Execution
from workers.loop import Link
from workers.slots import Slots

Connection = psycopg.Connection[Any]

PENDING = """
insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, priority)
select pgtick.uuid7(), at, at, 'default', 1, %(priority)s
from (select now() - %(ago)s + n * interval '1 ms' as at from generate_series(1, %(n)s) n) as each
"""


@pytest.fixture(autouse=True)
def hours(connection: Connection) -> None:
    """Partitions of hours that are over; made before the clock of a bench is read, for that takes a while."""
    connection.execute("select pgtick.ensure_partitions(since => now() - interval '5 hours')")


def wait(connection: Connection, ago: timedelta, n: int, priority: int = 2) -> None:
    connection.execute(PENDING, {"ago": ago, "n": n, "priority": priority})


def taken(bench: Bench, capacity: int) -> list[tuple[int, int]]:
    """Hours ago and count, of what one claim took, as it took them."""
    found: dict[int, int] = {}
    for execution in bench.claim(capacity):
        ago = round((bench.clock.time - execution.due_at) / 3600)
        found[ago] = found.get(ago, 0) + 1
    return list(found.items())


def test_in_several_hours_priority_comes_first_and_then_time(bench: Bench, connection: Connection) -> None:
    wait(connection, timedelta(hours=4), 2, priority=4)
    wait(connection, timedelta(hours=3), 2, priority=3)
    wait(connection, timedelta(hours=2), 2, priority=1)
    wait(connection, timedelta(hours=1), 2, priority=2)
    wait(connection, timedelta(hours=0, seconds=1), 2, priority=1)
    assert sorted(taken(bench, 5)) == [(0, 2), (1, 1), (2, 2)]
    assert sorted(taken(bench, 4)) == [(1, 1), (3, 2), (4, 1)]
    assert taken(bench, 4) == [(4, 1)]


def test_an_hour_without_a_partition_hides_no_other(bench: Bench, connection: Connection) -> None:
    wait(connection, timedelta(hours=3), 1)
    wait(connection, timedelta(seconds=1), 1)
    hour = "select 'pending_executions_' || to_char(now() at time zone 'UTC' - interval '2 hours', 'YYYYMMDD_HH2400')"
    name = connection.execute(hour).fetchone()
    assert name is not None
    connection.execute(f"drop table pgtick.{name[0]}")
    assert sorted(taken(bench, 10)) == [(0, 1), (3, 1)]


def test_a_role_with_rights_on_the_table_alone_claims_all_the_same(
    server: Server, bench: Bench, connection: Connection
) -> None:
    roles.make(server.admin)
    connection.execute("select pgtick.grant_roles()")
    for (name,) in connection.execute(
        "select inhrelid::regclass::text from pg_inherits where inhparent = 'pgtick.pending_executions'::regclass"
    ).fetchall():
        connection.execute(f"revoke all on {name} from pgtick_app")
    bench.dsn = roles.address(bench.dsn, "app")
    wait(connection, timedelta(hours=2), 1, priority=4)
    wait(connection, timedelta(seconds=1), 1)
    assert bench.claim(1) == [], "the first finds out"
    found = bench.claim(1, ticks=3)
    assert [round((bench.clock.time - each.due_at) / 3600) for each in found] == [0, 2]


def test_behind_a_backlog_of_several_hours_what_is_due_now_does_not_starve(
    bench: Bench, connection: Connection
) -> None:
    wait(connection, timedelta(hours=3), 50)
    wait(connection, timedelta(hours=2), 50)
    wait(connection, timedelta(seconds=1), 5)
    found = bench.claim(10, ticks=2)
    assert sum(bench.clock.time - each.due_at < 2 for each in found) == 5


def test_what_a_claim_took_runs_though_its_task_went_out_of_sight_meanwhile(
    bench: Bench, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an HTTP task is deleted while the claim is under way."""
    look = Claimer._look

    async def look_and_forget(self: Claimer, *arguments: Any) -> list[Any]:
        rows = await look(self, *arguments)
        self._pools[0].know({})
        return rows

    monkeypatch.setattr(Claimer, "_look", look_and_forget)
    wait(connection, timedelta(seconds=1), 2)
    assert len(bench.claim()) == 2


@pytest.mark.parametrize("hours", [-1, 1])
def test_what_is_due_follows_the_clock_of_the_database_at_once_when_that_is_set(
    bench: Bench, connection: Connection, hours: int
) -> None:
    before = Clock()
    before.observe(bench.clock.now() - hours * 3600, time.monotonic() - 0.001, time.monotonic())
    found: list[Execution] = []

    async def claim_twice(link: Link) -> None:
        claimer = Claimer(bench.settings, before, link, [Slots("async", 10, bench.tasks)], 1, found.extend)
        await claimer.tick()
        wait(connection, timedelta(0), 1)
        wait(connection, timedelta(minutes=-30), 1)
        claimer.lower_floors(bench.clock.now())
        await claimer.tick()

    bench._with_link(claim_twice)
    (execution,) = found
    assert execution.due_at < before.now()
