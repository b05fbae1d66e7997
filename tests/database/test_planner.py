"""What the planner makes of schedules, on a clock of the test's own: missed runs, pauses, limits, new zone data."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.schedule.horizon import first
from tests.support.databases import Server
from tests.support.working import TASK, Bench
from workers.execution import Completed
from workers.loop import Link
from workers.planner import Planner

Connection = psycopg.Connection[Any]
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class World:
    """A database, a clock that stands at half past some minute, and jobs whose planner has been away."""

    def __init__(self, dsn: str, connection: Connection) -> None:
        self.connection = connection
        connection.execute("insert into pgtick.tasks (task_id, target) values ('noop', 'x')")
        self.now = datetime.now(UTC).replace(second=30, microsecond=0)
        self.bench = Bench(dsn, {1: TASK}, self.now.timestamp())

    def value(self, query: str, *values: Any) -> Any:
        row = self.connection.execute(query, values).fetchone()
        return row[0] if row else None

    def job(self, expression: str, next_run_at: datetime | None, **policies: Any) -> UUID:
        job_id: UUID = self.value("select pgtick.create_job('noop', %s, policies => %s)", expression, Jsonb(policies))
        if next_run_at is not None:
            self.connection.execute(
                "update pgtick.schedules set next_run_at = %(at)s, planned_through = %(at)s - interval '1 ms',"
                " anchor_at = %(at)s - interval '1 day', zone_version = null where job_id = %(job_id)s",
                {"at": next_run_at, "job_id": job_id},
            )
        return job_id

    def made(self, job_id: UUID) -> list[datetime]:
        rows = self.connection.execute(
            "select scheduled_at from pgtick.pending_executions where job_id = %s order by 1", [job_id]
        )
        return [row[0] for row in rows]

    def overlaps(self, job_id: UUID) -> list[str | None]:
        rows = self.connection.execute(
            "select overlap from pgtick.pending_executions where job_id = %s order by scheduled_at", [job_id]
        )
        return [row[0] for row in rows]

    def skipped(self, job_id: UUID) -> list[tuple[datetime, int]]:
        rows = self.connection.execute(
            "select scheduled_at, skipped from pgtick.finished_executions where job_id = %s and status = 'SKIPPED'"
            " order by 1",
            [job_id],
        )
        return [(at, count) for at, count in rows]

    def next_run_at(self, job_id: UUID) -> datetime | None:
        found: datetime | None = self.value("select next_run_at from pgtick.schedules where job_id = %s", job_id)
        return found


@pytest.fixture
def world(dsn: str, connection: Connection) -> World:
    return World(dsn, connection)


class Case(NamedTuple):
    away: timedelta
    period: timedelta
    missed: str
    overlap: str
    paused: bool


AWAY = (10 * MINUTE, 3 * HOUR, 3 * DAY)
CASES = [
    Case(*case)
    for case in itertools.product(
        AWAY, (MINUTE, DAY), ("latest", "all", "skip"), ("allow", "skip", "queue_one", "cancel_running"), (False, True)
    )
]


@pytest.fixture(scope="module")
def outages(server: Server, template: str) -> Iterator[tuple[World, dict[Case, tuple[UUID, list[datetime]]]]]:
    """A job for each case, after one round of planning, and the occurrences that each of them missed."""
    with server.database(template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        world = World(dsn, connection)
        on_minute = world.now.replace(second=0)
        jobs: dict[Case, tuple[UUID, list[datetime]]] = {}
        for case in CASES:
            # Daily ones were last due 20 minutes ago, or 5 for the short outage.
            newest = on_minute if case.period == MINUTE else on_minute - min(20 * MINUTE, case.away / 2)
            first = newest - case.period * ((case.away - MINUTE) // case.period)
            daily = f"{newest.minute} {newest.hour} * * *"
            expression = "* * * * *" if case.period == MINUTE else daily
            job_id = world.job(expression, first, missed=case.missed, overlap=case.overlap)
            missed = [first + case.period * n for n in range((newest - first) // case.period + 1)]
            jobs[case] = job_id, missed
            if case.paused:
                connection.execute("select pgtick.pause_job(%s)", [job_id])
        world.bench.plan()
        yield world, jobs


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.away}-{case.period}-{'-'.join(map(str, case[2:]))}")
def test_missed_occurrences_after_an_outage(
    outages: tuple[World, dict[Case, tuple[UUID, list[datetime]]]], case: Case
) -> None:
    world, jobs = outages
    job_id, missed = jobs[case]
    made, skipped = world.made(job_id), world.skipped(job_id)
    if case.paused:
        assert (made, skipped) == ([], [])
        return
    caught_up = [at for at in made if at <= world.now]
    if case.missed == "all":
        expected = [at for at in missed if at >= world.now - DAY]
    elif case.missed == "latest" or world.now - missed[-1] <= MINUTE:
        expected = missed[-1:]
    else:
        expected = []
    assert caught_up == expected
    left_out = len(missed) - len(expected)
    assert sum(count for _, count in skipped) == left_out
    assert len(skipped) == (left_out > 0), "folded into one row"
    assert [at for at in made if at > world.now] == ([world.now + MINUTE / 2] if case.period == MINUTE else [])
    assert world.next_run_at(job_id) == (world.now + 1.5 * MINUTE if case.period == MINUTE else missed[-1] + DAY)
    rules = set(world.overlaps(job_id)[: len([at for at in caught_up if world.now - at > MINUTE])])
    in_turn = "wait" if case.missed == "all" else case.overlap
    assert rules <= {None if case.overlap == "allow" else in_turn}


def test_resuming_after_slots_went_by_runs_none_of_them(world: World) -> None:
    job_id = world.job("* * * * *", world.now.replace(second=0) - 3 * HOUR, missed="all")
    world.connection.execute("select pgtick.pause_job(%s)", [job_id])
    world.bench.plan()
    world.connection.execute("select pgtick.resume_job(%s)", [job_id])
    # Resuming is by the database's clock, which goes on.
    resumed_at = world.value("select now()")
    world.bench.clock.time = resumed_at.timestamp()
    world.bench.plan()
    made = world.made(job_id)
    assert made
    assert all(resumed_at < at <= resumed_at + MINUTE for at in made)
    assert world.skipped(job_id) == []


def test_other_policies_lose_nothing_that_was_missed(world: World) -> None:
    hour = world.now.replace(minute=0, second=0)
    late = [world.job(f"{expression} * * * *", hour - HOUR) for expression in ("0", "0-0")]
    new = world.job("0 * * * *", None)
    for policies in ({"overlap": "allow"}, {"overlap": "allow", "jitter_s": 1}):
        for job_id in (*late, new):
            world.value("select pgtick.edit_job(%s, %s)", job_id, Jsonb({"policies": policies}))
    world.value("select pgtick.edit_job(%s, %s)", late[1], Jsonb({"schedule": "30 3 1 1 *"}))
    world.bench.clock.time = datetime.now(UTC).timestamp()
    world.bench.plan()
    assert [[at for at in world.made(job_id) if at <= world.now] for job_id in (*late, new)] == [[hour], [], []]
    assert world.skipped(late[0]) == [(hour - HOUR, 1)]


def test_what_was_pending_when_everything_went_down_is_missed_like_the_rest(world: World) -> None:
    job_id = world.job("* * * * *", world.now.replace(second=0) - 3 * HOUR)
    world.connection.execute("select pgtick.ensure_partitions(since => now() - interval '4 hours')")
    world.bench.clock.time -= (3 * HOUR).total_seconds()
    world.bench.plan()
    before = world.made(job_id)
    assert len(before) == 2
    world.bench.clock.time = world.now.timestamp()
    world.bench.plan()
    for _ in range(3):
        world.bench.report(*[(execution, Completed()) for execution in world.bench.claim()])
    completed = world.connection.execute(
        "select scheduled_at from pgtick.finished_executions where status = 'COMPLETED' and scheduled_at <= %s",
        [world.now],
    ).fetchall()
    assert completed == [(world.now.replace(second=0),)], "the latest, once"
    assert sum(count or 1 for _, count in world.skipped(job_id)) == 180


def test_limits_end_a_schedule(world: World) -> None:
    start = world.now.replace(second=0) + 30 * MINUTE
    bounded = world.job("* * * * *", None, start_at=start.isoformat(), end_at=(start + 2 * MINUTE).isoformat())
    counted = world.job("* * * * *", None, max_runs=2)
    world.bench.plan()
    assert (world.made(bounded), world.next_run_at(bounded)) == ([], start)
    for minute in range(40):
        world.bench.clock.time = (world.now + minute * MINUTE).timestamp()
        world.bench.plan()
    assert world.made(bounded) == [start, start + MINUTE, start + 2 * MINUTE]
    assert (len(world.made(counted)), world.next_run_at(counted)) == (2, None)


def test_a_planner_that_has_caught_up_is_not_behind(bench: Bench, connection: Connection) -> None:
    connection.execute("select pgtick.create_job('noop', '0 0 1 1 *')")
    connection.execute("update pgtick.schedules set next_run_at = now() - interval '1 hour'")

    async def lags() -> list[float]:
        link = Link("test", bench.dsn)
        planner = Planner(bench.settings, bench.clock, link, lambda _: None)
        found = []
        for _ in range(3):
            await planner.tick()
            found.append(planner.lag_s)
        await link.close()
        return found

    first, *_, last = asyncio.run(lags())
    assert (first > 3_000, last) == (True, 0.0)


def test_a_run_skipped_by_hand_is_none_of_max_runs(world: World) -> None:
    pending, ahead = (world.job("* * * * *", None, max_runs=2) for _ in range(2))
    world.bench.plan()
    world.value("select pgtick.skip_run(%s)", pending)
    world.value("select pgtick.skip_run(%s, %s)", ahead, world.next_run_at(ahead))
    for minute in range(1, 6):
        world.bench.clock.time = (world.now + minute * MINUTE).timestamp()
        world.bench.plan()
    for job_id in (pending, ahead):
        assert (len(world.made(job_id)), world.next_run_at(job_id)) == (2, None)


def test_a_schedule_stands_at_the_next_time_that_was_not_skipped_by_hand(world: World) -> None:
    job_id = world.job("0 10 * * *", None, missed="skip")
    world.bench.plan()
    due = world.next_run_at(job_id)
    assert due is not None
    again = first("0 10 * * *", "UTC", None, due)
    assert again is not None
    world.value("select pgtick.skip_run(%s, %s)", job_id, again)
    world.value("select pgtick.skip_run(%s, %s)", job_id, due)
    following = first("0 10 * * *", "UTC", None, again)
    waits = "select scheduled_at from pgtick.executions where job_id = %s and status = 'PENDING'"
    for zone_version in ("2019a", "2026z"):
        world.bench.plan()
        assert world.next_run_at(job_id) == world.value(waits, job_id) == following
        # Other zone data, also long after, brings neither back.
        world.connection.execute("update pgtick.schedules set zone_version = %s", [zone_version])
    assert following is not None
    world.bench.clock.time = following.timestamp() - 20
    world.connection.execute("select pgtick.ensure_partitions(%s - now() + interval '1 hour')", [following])
    world.bench.plan()
    assert world.made(job_id) == [following]
    assert world.skipped(job_id) == [(due, 1), (again, 1)]


def test_one_that_was_skipped_by_hand_takes_no_missed_one_out(world: World) -> None:
    hour = world.now.replace(minute=0, second=0)
    job_id = world.job("0 * * * *", hour + HOUR)
    world.value("select pgtick.skip_run(%s, %s)", job_id, hour + 2 * HOUR)
    world.bench.clock.time = (hour + HOUR - MINUTE / 6).timestamp()
    world.bench.plan()
    expires_at = world.value("select expires_at from pgtick.pending_executions where job_id = %s", job_id)
    assert (world.made(job_id), expires_at) == ([hour + HOUR], hour + 3 * HOUR)


def test_jitter_exclusions_and_deadlines_reach_the_executions(world: World) -> None:
    today = f"{world.now:%Y-%m-%d}"
    spread = world.job("*/10 * * * * *", None, jitter_s=9, expires_after_s=5)
    closed = world.job("*/10 * * * * *", None, exclude=[today, f"{world.now + DAY:%Y-%m-%d}"])
    world.bench.plan()
    rows = world.connection.execute(
        "select extract(epoch from due_at - scheduled_at)::float8, extract(epoch from expires_at - due_at)::float8"
        " from pgtick.pending_executions where job_id = %s",
        [spread],
    ).fetchall()
    delays = [row[0] for row in rows]
    assert len(set(delays)) > 3
    assert all(0 <= delay < 9 for delay in delays)
    assert {row[1] for row in rows} == {5.0}
    assert world.made(closed) == []


def test_a_single_run_that_stood_far_ahead_keeps_its_policies(world: World) -> None:
    job_id = world.value(
        "select pgtick.create_job('noop', '2031-01-01T00:00:00Z', policies => %s)",
        Jsonb({"overlap": "skip", "expires_after_s": 7, "jitter_s": 20}),
    )
    world.connection.execute("update pgtick.schedules set next_run_at = %s", [world.now])
    world.bench.plan()
    assert world.overlaps(job_id) == ["skip"]
    assert world.value("select extract(epoch from expires_at - due_at)::int from pgtick.pending_executions") == 7
    assert world.value("select count(*) from pgtick.schedules") == 0


def test_a_row_that_is_no_schedule_stops_only_itself_and_says_so(world: World) -> None:
    bad = world.job("0 0 30 2 *", None)
    zoned = world.job("0 10 * * *", None)
    world.connection.execute("update pgtick.schedules set timezone = 'Mars/Olympus' where job_id = %s", [zoned])
    good = world.job("* * * * *", None)
    world.bench.plan()
    assert world.made(good)
    for job_id, word in ((bad, "no month has such a day"), (zoned, "Mars/Olympus")):
        assert word in world.value("select problem from pgtick.schedules where job_id = %s", job_id)


def test_what_was_missed_before_history_begins_runs_all_the_same(world: World) -> None:
    ago = world.now.replace(second=0) - 26 * DAY
    monthly = world.job(f"{ago.minute} {ago.hour} {ago.day} * *", ago)
    last_year = world.now.replace(second=0) - 330 * DAY
    yearly = world.job(f"{last_year.minute} {last_year.hour} {last_year.day} {last_year.month} *", last_year)
    single = world.value("select pgtick.create_job('noop', '2031-01-01T00:00:00Z')")
    ancient = datetime(2001, 1, 1, tzinfo=UTC)
    world.connection.execute("update pgtick.schedules set next_run_at = %s where job_id = %s", [ancient, single])
    cron = world.job("* * * * *", None)
    world.bench.plan()
    assert (world.made(monthly), world.made(yearly), world.made(single)) == ([ago], [last_year], [ancient])
    assert world.made(cron)
    hours = "select count(*) from pgtick.partitions where parent in ('pending_executions', 'finished_executions')"
    assert world.value(hours) < 2 * 24 * 11
    world.bench.report(*((execution, Completed()) for execution in world.bench.claim()))
    done = "select count(*) from pgtick.finished_executions where status = 'COMPLETED' and job_id = any(%s)"
    assert world.value(done, [monthly, yearly, single]) == 3


def test_a_schedule_that_cannot_be_read_planned_or_written_stops_only_itself(world: World) -> None:
    odd = {
        "years 2000 to 2199": '{"start_at": "0001-01-01T00:00:00Z"}',
        "RecursionError": f'{{"exclude": {"[" * 1500}{"]" * 1500}}}',
        "ValidationError": '{"exclude": [1e5000]}',
    }
    jobs = {world.job("0 10 * * *", None): word for word in odd}
    for job_id, word in jobs.items():
        world.connection.execute("update pgtick.schedules set policies = %s where job_id = %s", [odd[word], job_id])
    # Times that Python does not know, as a server without these rules may hold.
    world.connection.execute("alter table pgtick.schedules drop constraint schedules_anchor_at_is_sane")
    jobs[world.job("@every 7s", None)] = "timestamp too large"
    world.connection.execute("update pgtick.schedules set anchor_at = 'infinity' where expression = '@every 7s'")
    world.connection.execute("alter table pgtick.schedules drop constraint schedules_runs_is_sane")
    jobs[world.job("*/1 * * * *", None)] = "out of range"
    world.connection.execute("update pgtick.schedules set runs = %s where expression like '*/1%%'", [2**63 - 1])
    good = world.job("* * * * *", None)
    world.bench.plan()
    assert world.made(good)
    for job_id, word in jobs.items():
        assert word in world.value("select problem from pgtick.schedules where job_id = %s", job_id)
        assert world.made(job_id) == []


def test_times_and_counts_that_no_planner_can_work_with_are_kept_out_of_schedules(world: World) -> None:
    job_id = world.job("0 10 * * *", None)
    for change in (
        "anchor_at = 'infinity'",
        "anchor_at = '-infinity'",
        "planned_through = 'infinity', zone_version = null",
        "runs = 9223372036854775807",
        "priority = 99",
        "skips = array['20000-01-01 00:00Z'::timestamptz]",
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            world.connection.execute(f"update pgtick.schedules set {change}")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"at: .* is more than 10 years ahead"):
        world.connection.execute("select pgtick.skip_run(%s, '20000-01-01 00:00Z')", [job_id])


def test_a_fault_of_the_database_breaks_no_schedule(world: World) -> None:
    job_id = world.job("* * * * *", None)
    world.connection.execute("alter table pgtick.finished_executions rename to elsewhere")
    with pytest.raises(psycopg.errors.UndefinedTable):
        world.bench.plan()
    world.connection.execute("alter table pgtick.elsewhere rename to finished_executions")
    world.bench.plan()
    assert world.made(job_id)


def test_new_zone_data_moves_every_stored_time_in_batches_and_only_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.planner.BATCH", 3)
    jobs = [world.job("0 10 * * *", None) for _ in range(8)]
    world.bench.plan()
    right = {job_id: world.next_run_at(job_id) for job_id in jobs}
    # As if a zone's rules had been others: the stored time is later than it should be, so nobody would look in time.
    world.connection.execute(
        "update pgtick.schedules set next_run_at = next_run_at + interval '1 hour', zone_version = '2019a'"
    )
    world.bench.plan()
    assert {job_id: world.next_run_at(job_id) for job_id in jobs} == right
    assert world.value("select count(*) from pgtick.schedules where zone_version = '2019a'") == 0


def test_new_zone_data_brings_nothing_back_that_was_left_out(world: World) -> None:
    job_id = world.job("0 * * * *", world.now.replace(minute=0, second=0) - 5 * HOUR, missed="skip")
    world.bench.clock.time = world.now.replace(minute=30).timestamp()
    world.bench.plan()
    before = world.skipped(job_id)
    assert sum(count for _, count in before) == 6
    world.connection.execute("update pgtick.schedules set zone_version = '2019a'")
    world.bench.plan()
    assert (world.skipped(job_id), world.made(job_id)) == (before, [])
