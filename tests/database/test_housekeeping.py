"""What workers do about workers that are gone, claims that nobody runs, and partitions that are over."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from app.clock import Clock
from app.store import queries
from tests.support.working import Bench
from workers.claimer import FEW, Claimer
from workers.execution import Completed
from workers.janitor import Janitor
from workers.loop import Link
from workers.presence import Presence

Connection = psycopg.Connection[Any]


def values(connection: Connection, query: str) -> list[Any]:
    return [row[0] for row in connection.execute(query).fetchall()]


def test_workers_that_fell_silent_are_lost_and_forgotten_after_a_week(connection: Connection) -> None:
    for state in ("RUNNING", "DRAINING", "STOPPED", "LOST"):
        for silent in ("10 s", "2 minutes", "6 days", "8 days"):
            connection.execute(
                "insert into pgtick.workers (name, capacity, task_keys, version, state, last_seen_at)"
                " values (%s, 1, '{}', '0', %s, now() - %s::interval)",
                [f"{state} {silent}", state, silent],
            )
    for _ in range(2):  # what is lost is forgotten the next time
        connection.execute(queries.retire_workers, {"silent": timedelta(seconds=90)})
    found = dict(connection.execute("select name, state from pgtick.workers").fetchall())
    lost = {f"{was} {silent}": "LOST" for was in ("RUNNING", "DRAINING", "LOST") for silent in ("2 minutes", "6 days")}
    stopped = {f"STOPPED {silent}": "STOPPED" for silent in ("10 s", "2 minutes", "6 days")}
    assert found == lost | stopped | {"RUNNING 10 s": "RUNNING", "DRAINING 10 s": "DRAINING", "LOST 10 s": "LOST"}


def test_what_a_dead_worker_had_claimed_ahead_goes_back_and_the_rest_is_judged(
    bench: Bench, connection: Connection
) -> None:
    names = ("ahead", "ahead, to stop", "ahead, not to start", "begun", "of another worker")
    for name in names:
        connection.execute("select pgtick.create_job('noop', user_id => %s)", [name])
    bench.claim()
    for column, at, user in (
        ("due_at", "now() + interval '1 hour'", "ahead%"),
        ("cancel_requested_at", "now()", "%to stop"),
        ("revoked_at", "now()", "%to start"),
        ("worker_id", "2", "of%"),
    ):
        connection.execute(f"update pgtick.running_executions set {column} = {at} where user_id like %s", [user])
    connection.execute("insert into pgtick.workers (name, capacity, task_keys, version) values ('w', 1, '{}', '0')")
    assert values(connection, "select worker_id from pgtick.workers") == [1]
    assert connection.execute(queries.bury_worker, {"worker_id": 1}).fetchone() == (1, 3)
    waiting = connection.execute("select user_id, attempt, losses, suspect from pgtick.pending_executions").fetchall()
    assert waiting == [("ahead", 0, 0, False)]
    over = "select user_id from pgtick.running_executions where lease_expires_at <= clock_timestamp()"
    assert sorted(values(connection, over)) == sorted(names[1:4])
    assert values(connection, "select state from pgtick.workers") == ["LOST"]


def test_a_claim_whose_answer_was_lost_is_handed_back_after_two_looks(bench: Bench, connection: Connection) -> None:
    for user in ("known", "unknown"):
        connection.execute("select pgtick.create_job('noop', user_id => %s)", [user])
    bench.claim()
    (lost,) = values(connection, "select claim_id from pgtick.running_executions where user_id = 'unknown'")
    del bench.claims[lost]
    woken: list[bool] = []

    async def look_twice() -> None:
        link = Link("test", bench.dsn)
        janitor = Janitor(bench.settings, bench.clock, link, 1, bench.claims, lambda: woken.append(True))
        await janitor.hand_back()
        assert not woken, "its answer may be on the way still"
        await janitor.hand_back()
        await link.close()

    asyncio.run(look_twice())
    assert values(connection, "select user_id from pgtick.running_executions") == ["known"]
    waiting = connection.execute("select user_id, attempt, losses from pgtick.pending_executions").fetchall()
    assert waiting == [("unknown", 0, 0)]
    assert woken


def test_a_claim_whose_answer_is_still_being_read_is_not_handed_back(
    bench: Bench, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a thousand jobs whose rows come from a slow disk: they would run a second time."""
    for _ in range(FEW + 1):
        connection.execute("select pgtick.create_job('noop')")
    read = Claimer._with_jobs

    async def look_twice_and_read(self: Claimer, *arguments: Any) -> list[Any]:
        link = Link("test", bench.dsn)
        janitor = Janitor(bench.settings, bench.clock, link, 1, bench.claims, lambda: None, lambda: self.under_way)
        await janitor.hand_back()
        await janitor.hand_back()
        await link.close()
        return await read(self, *arguments)

    monkeypatch.setattr(Claimer, "_with_jobs", look_twice_and_read)
    claimed = bench.claim()
    assert len(claimed) == FEW + 1
    bench.report(*((execution, Completed()) for execution in claimed))
    done = "select count(*) from pgtick.finished_executions where status = 'COMPLETED'"
    assert values(connection, done) == [FEW + 1], "none was handed back"


async def spares_and_then_judges(janitor: Janitor, connection: Connection) -> None:
    """A claim whose lease is over is left alone for as long as a worker needs to renew it, and no longer."""
    running = "select count(*) from pgtick.running_executions"
    await janitor.recover()
    assert values(connection, running) == [1]
    while values(connection, running) == [1]:
        await janitor.recover()


def test_after_an_outage_others_get_time_to_renew_before_they_are_judged(bench: Bench, connection: Connection) -> None:
    connection.execute("select pgtick.create_job('noop')")
    bench.claim()
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")

    async def judge() -> None:
        link = Link("test", bench.dsn)
        janitor = Janitor(replace(bench.settings, renew_s=0.1), bench.clock, link, 1, bench.claims, lambda: None)
        await janitor._notice_outage()
        await link.close()
        await janitor._notice_outage()
        await spares_and_then_judges(janitor, connection)
        await link.close()

    asyncio.run(judge())
    assert values(connection, "select losses from pgtick.pending_executions") == [1]


def test_when_the_clock_of_the_database_was_set_ahead_workers_get_time_to_renew(
    bench: Bench, connection: Connection
) -> None:
    connection.execute("select pgtick.create_job('noop')")
    bench.claim()
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '10 minutes'")
    before = Clock()
    before.observe(bench.clock.now() - 600, time.monotonic() - 0.001, time.monotonic())

    async def judge() -> None:
        link = Link("test", bench.dsn)
        janitor = Janitor(replace(bench.settings, renew_s=0.1), before, link, 1, bench.claims, lambda: None)
        await spares_and_then_judges(janitor, connection)
        await link.close()

    asyncio.run(judge())
    assert values(connection, "select losses from pgtick.pending_executions") == [1]


@pytest.mark.parametrize(("started", "judged"), [("-1 hour", True), ("-1 second", False), ("1 hour", True)])
def test_a_server_that_says_it_started_in_the_future_is_not_waited_for(
    bench: Bench, connection: Connection, started: str, judged: bool
) -> None:
    connection.execute("select pgtick.create_job('noop')")
    bench.claim()
    connection.execute("update pgtick.running_executions set lease_expires_at = now() - interval '1 s'")
    connection.execute(
        f"""
        create schema since;
        create function since.pg_postmaster_start_time() returns timestamptz return clock_timestamp() + '{started}';
        set search_path = since, pg_catalog"""
    )
    facts = {"n": 1, "grace": timedelta(seconds=10), "only": None}
    assert len(connection.execute(queries.recover_expired, facts).fetchall()) == judged


def test_a_lease_that_lasts_too_long_since_the_clock_was_set_back_is_shortened(
    bench: Bench, connection: Connection
) -> None:
    for user in ("fresh", "too long"):
        connection.execute("select pgtick.create_job('noop', user_id => %s)", [user])
    bench.claim()
    connection.execute(
        "update pgtick.running_executions set lease_expires_at = clock_timestamp()"
        " + case user_id when 'fresh' then interval '29 s' else interval '1 hour' end"
    )
    facts = {
        **Presence(bench.settings, bench.tasks).facts(running=2),
        "worker_id": 1,
        "blocked_s": None,
        "lease": timedelta(seconds=30),
        "renew": timedelta(seconds=5),
    }
    connection.execute(queries.keep_alive, facts)
    left = "select lease_expires_at - clock_timestamp() < interval '31 s' from pgtick.running_executions"
    assert values(connection, left) == [True, True]


def test_partitions_that_are_over_go_and_none_that_waits_or_is_to_come(connection: Connection) -> None:
    connection.execute("select pgtick.ensure_partitions(since => now() - interval '5 hours')")
    connection.execute("select pgtick.extend_partitions('execution_stats', now() - interval '33 days', now())")
    over = "select partition from pgtick.partitions where parent = '{}' and until_at < now() - interval '{}' order by 1"
    old = values(connection, over.format("execution_stats", "30 days"))
    waiting, *empty = values(connection, over.format("pending_executions", "2 hours"))
    found = connection.execute(queries.expired_partitions, {"retention": timedelta(days=30)}).fetchall()
    assert sorted(name for (name,) in found) == sorted([*old, waiting, *empty])
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
        " select pgtick.uuid7(), from_at, from_at, 'default', 1 from pgtick.partitions where partition = %s",
        [waiting],
    )
    for name in (*old, *empty, waiting):
        assert values(connection, f"select pgtick.drop_partition('{name}')") == [name != waiting]
    assert values(connection, "select count(*) from pgtick.pending_executions") == [1]
    assert values(connection, "select partition from pgtick.missing_partitions()") == [], "they are gone for good"
    for name in values(connection, "select partition from pgtick.partitions where until_at > now() limit 3"):
        with pytest.raises(psycopg.Error, match="is not over before"):
            connection.execute("select pgtick.drop_partition(%s)", [name])


def test_hours_in_which_something_waits_for_ever_keep_no_later_ones_from_being_dropped(connection: Connection) -> None:
    for days in (1, 2):
        connection.execute("select pgtick.ensure_partitions(since => now() - %s)", [timedelta(days=days)])
    over = (
        "select partition from pgtick.partitions"
        " where parent = 'pending_executions' and until_at < now() - interval '2 hours' order by 1"
    )
    hours = values(connection, over)
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
        " select pgtick.uuid7(), from_at, from_at, 'default', 1 from pgtick.partitions where partition = any (%s)",
        [hours[:30]],
    )
    found = connection.execute(queries.expired_partitions, {"retention": timedelta(days=30)}).fetchall()
    assert sorted(name for (name,) in found) == hours[30:]
