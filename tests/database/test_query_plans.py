"""Statements of the hot path and listings touch only the partitions and rows they need, however much there is.

Judged by what EXPLAIN ANALYZE says was read, never by time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.rows import dict_row

from app.domain.ids import uuid7s
from app.store import last_runs, queries
from app.store.connections import HOT_SETTINGS
from app.store.search import Filter, Search
from app.store.users import Users
from tests.support.databases import Server
from workers.occurrences import Batch

pytestmark = pytest.mark.slow

Connection = psycopg.Connection[Any]

MILLION = 1_000_000
N = 100
"""Rows that each statement is asked for; there are always more that it could have."""
SMALL = 500
"""Rows of a table that is not worth an index: at the turn of an hour a partition may have so few."""
RECENT = timedelta(minutes=10)
NUMBERED = "('00000000-0000-7000-8000-' || lpad(to_hex(%(first)s + n), 12, '0'))::uuid, 'user_' || n %% 1000, 1"
PENDING = f"""
insert into pgtick.pending_executions (scheduled_at, due_at, job_id, user_id, task_key)
select %(since)s + %(span)s * n / %(rows)s, %(since)s + %(span)s * n / %(rows)s, {NUMBERED}
from generate_series(1, %(rows)s) n
"""
STANDING = f"""
insert into pgtick.schedules (next_run_at, expression, zone_version, job_id, user_id, task_key)
select %(since)s + %(span)s * n / %(rows)s, '* * * * *', 'any', {NUMBERED}
from generate_series(1, %(rows)s) n
"""


class Database(NamedTuple):
    """A filled database, through a connection as workers have it and through one as the API has it."""

    worker: Connection
    api: Connection
    now: datetime


class Reading:
    """What a statement read: rows of each table, with those it dropped, and the indexes that led to them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.rows: dict[str, int] = {}
        self.ways: dict[str, set[str]] = {}
        self._visit(plan)

    def _visit(self, node: dict[str, Any]) -> None:
        if "Relation Name" in node and "Scan" in node["Node Type"] and node["Actual Loops"]:
            table = node["Relation Name"]
            dropped = sum(value for name, value in node.items() if name.startswith("Rows Removed"))
            read = round((node["Actual Rows"] + dropped) * node["Actual Loops"])
            self.rows[table] = self.rows.get(table, 0) + read
            self.ways.setdefault(table, set()).add(node.get("Index Name", node["Node Type"]))
        for child in node.get("Plans", ()):
            self._visit(child)

    def partitions(self, parent: str) -> set[str]:
        """The partitions that were looked at, whether anything was there or not."""
        return {table for table in self.rows if re.fullmatch(parent + r"_\d{8}_\d{4}", table)}

    def indexes(self, parent: str) -> set[str]:
        """The ways into a table and its partitions, each name without its partition's."""
        found = {way for table in {parent, *self.partitions(parent)} for way in self.ways.get(table, ())}
        return {re.sub(r"_\d{8}_\d{4}", "", way) for way in found}

    @property
    def scanned_in_full(self) -> dict[str, int]:
        """Tables of more than a handful of rows that were read from end to end."""
        return {
            table: self.rows[table] for table, ways in self.ways.items() if "Seq Scan" in ways and self.rows[table] > N
        }


def options(settings: dict[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def explain(connection: Connection, statement: str, values: Any) -> Reading:
    row = connection.execute(f"explain (analyze, timing off, format json) {statement}", values).fetchone()
    assert row is not None
    return Reading(row[0][0]["Plan"])


@pytest.fixture(scope="module", params=["empty", "1 M pending", "1 M far-future", "700 partitions"])
def database(request: pytest.FixtureRequest, server: Server, template: str) -> Iterator[Database]:
    with server.database(template) as dsn, psycopg.connect(dsn, autocommit=True) as api:
        now = datetime.now(UTC)
        api.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'x')")
        api.execute("insert into pgtick.users (user_id) select 'user_' || n from generate_series(0, 999) n")
        match request.param:
            case "1 M pending":
                api.execute(PENDING, {"rows": MILLION, "since": now - RECENT, "span": RECENT, "first": 0})
            case "1 M far-future":
                api.execute("select pgtick.ensure_partitions(interval '48 hours')")
                half, day = MILLION // 2, timedelta(days=1)
                api.execute(PENDING, {"rows": half, "since": now + day / 6, "span": day * 1.5, "first": 0})
                api.execute(STANDING, {"rows": half, "since": now + 30 * day, "span": 300 * day, "first": 0})
            case "700 partitions":
                long = timedelta(hours=350)
                extend = "select pgtick.extend_partitions(%s, %s, %s)"
                api.execute(extend, ["pending_executions", now, now + long])
                api.execute(extend, ["finished_executions", now - long, now])
        few = {"rows": 50 * N, "since": now - RECENT, "span": RECENT, "first": MILLION}
        api.execute(PENDING, few)
        api.execute(STANDING, few)
        api.execute("analyze pgtick.pending_executions, pgtick.schedules")
        with psycopg.connect(dsn, autocommit=True, options=options(HOT_SETTINGS)) as worker:
            yield Database(worker, api, now)


def claim(now: datetime) -> dict[str, Any]:
    """The values of a claim of N."""
    floor = now - RECENT - timedelta(seconds=5)
    return {
        "floor": floor,
        "floors": [floor] * 4,
        "until": now + timedelta(seconds=0.5),
        "task_keys": [1],
        "n": N,
        "worker_id": 1,
        "first_claim": 0,
        "lease": timedelta(seconds=30),
        "few": 4,
    }


def test_a_claim_reads_what_it_takes(database: Database) -> None:
    values = claim(database.now)
    with database.worker.transaction(force_rollback=True):
        reading = explain(database.worker, queries.claim_due(), values)
    hours = {at.strftime("pending_executions_%Y%m%d_%H00") for at in (values["floor"], values["until"])}
    assert reading.partitions("pending_executions") <= hours
    assert reading.indexes("pending_executions") == {"pending_executions_priority_due_at_idx", "Tid Scan"}
    # Each row once by the index, and once by its place in every hour that is looked at, where that has such a place:
    # an hour that has just begun may not.
    looked_at = len(reading.partitions("pending_executions"))
    read = sum(reading.rows[table] for table in reading.partitions("pending_executions"))
    assert 2 * N <= read <= N + N * looked_at
    assert reading.partitions("finished_executions") == set()
    assert reading.scanned_in_full == {}


def test_a_claim_from_one_partition_keeps_a_plan_that_does_for_an_empty_and_for_a_full_one(
    server: Server, template: str
) -> None:
    now = datetime.now(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0)
    partition = f"pending_executions_{hour:%Y%m%d_%H%M}"
    values = claim(now) | {"floor": hour, "floors": [hour] * 4, "until": hour + timedelta(hours=1)}
    types = {
        "floor": "timestamptz",
        "floors": "timestamptz[]",
        "until": "timestamptz",
        "task_keys": "int4[]",
        "n": "int8",
        "worker_id": "int4",
        "first_claim": "int8",
        "lease": "interval",
        "few": "int8",
    }
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${list(types).index(found[1]) + 1}", queries.claim_due(partition))
    kept = options(HOT_SETTINGS | {"plan_cache_mode": "force_generic_plan"})
    with server.database(template) as dsn, psycopg.connect(dsn, autocommit=True, options=kept) as worker:
        worker.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'x')")
        worker.execute(f"prepare claim ({', '.join(types.values())}) as {numbered.replace('%%', '%')}")
        taken = f"execute claim ({', '.join(f'%({name})s' for name in types)})"
        with psycopg.ClientCursor(worker) as cursor:
            assert cursor.execute(taken, values).fetchall() == []
            facts = {"rows": 50_000, "since": hour, "span": timedelta(minutes=59), "first": 0}
            cursor.execute(PENDING, facts)
            row = cursor.execute(f"explain (analyze, timing off, format json) {taken}", values).fetchone()
    assert row is not None
    reading = Reading(row[0][0]["Plan"])
    assert reading.rows[partition] == 2 * N
    assert reading.indexes("pending_executions") == {"pending_executions_priority_due_at_idx", "Tid Scan"}


def test_what_jobs_are_to_do_is_read_from_their_days_alone(database: Database) -> None:
    ids = uuid7s(N, database.now.timestamp())
    reading = explain(database.worker, queries.read_jobs, {"job_ids": ids, "first": ids[0], "last": ids[-1]})
    assert reading.partitions("jobs") == {database.now.strftime("jobs_%Y%m%d_0000")}
    assert reading.indexes("jobs") == {"jobs_pkey"}


def test_a_report_reads_the_claims_it_ends(database: Database) -> None:
    with database.worker.transaction(force_rollback=True):
        claims = [row[0] for row in database.worker.execute(queries.claim_due(), claim(database.now))]
        at = [database.now.timestamp()] * len(claims)
        outcomes = {"claims": claims, "started": at, "finished": at, "results": [None] * len(claims)}
        reading = explain(database.worker, queries.complete, outcomes)
    assert len(claims) == N
    assert reading.rows == {"running_executions": N}
    assert reading.indexes("running_executions") == {"running_executions_pkey"}


def test_a_report_and_a_renewal_read_their_claims_alone_though_statistics_know_of_none(
    server: Server, template: str
) -> None:
    """As after a burst: the table was empty when it was analyzed, and large."""
    insert = (
        "insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority,"
        " attempt, losses, suspect, worker_id, lease_expires_at)"
        " select n, pgtick.uuid7(), now(), now(), 'u', 1, 2, 1, 0, false, 1, now() + interval '1 s'"
        " from generate_series(1, 5000) as n"
    )
    hot = options(HOT_SETTINGS)
    with server.database(template) as dsn, psycopg.connect(dsn, autocommit=True, options=hot) as worker:
        worker.execute(insert)
        worker.execute("delete from pgtick.running_executions")
        worker.execute("analyze pgtick.running_executions")
        worker.execute(insert)
        claims = list(range(1, N + 1))
        outcomes = {"claims": claims, "started": [0.0] * N, "finished": [0.0] * N, "results": [None] * N}
        assert explain(worker, queries.complete, outcomes).rows == {"running_executions": N}
        worker.execute(insert + " on conflict do nothing")
        worker.execute("reset all")
        second = timedelta(seconds=1)
        facts = {"worker_id": 1, "name": "x", "state": "RUNNING", "running": 1, "capacity": 1, "pools": "{}"}
        facts |= {"task_keys": [], "queues": None, "version": "0", "lease": 30 * second, "renew": second}
        reading = explain(worker, queries.keep_alive, facts | {"blocked_s": None})
        assert "running_executions_pkey" in reading.indexes("running_executions")
        assert reading.rows["running_executions"] <= 3 * 5000, "once for each of its parts"


def test_a_sweep_reads_the_earliest_of_each_priority(database: Database) -> None:
    reading = explain(database.worker, queries.overlooked, {"until": database.now, "task_keys": [1]})
    assert sum(reading.rows.values()) <= 1
    assert reading.indexes("pending_executions") == {"pending_executions_priority_due_at_idx"}


def test_planning_reads_the_schedules_it_moves(database: Database) -> None:
    values = {"until": database.now + timedelta(seconds=30), "n": N, "only": None}
    with database.worker.transaction(force_rollback=True):
        reading = explain(database.worker, queries.select_schedules, values)
        assert reading.rows.pop("tasks", 0) <= 10, "once for all of them"
        assert reading.rows == {"schedules": N}
        assert reading.indexes("schedules") == {"schedules_by_next_run"}
        batch = Batch(database.now, database.now + timedelta(minutes=1), "any")
        for schedule in database.worker.execute(queries.select_schedules, values):
            batch.add(schedule)
        reading = explain(database.worker, queries.plan_occurrences, batch.columns())
    assert reading.rows.pop("partition_windows", 0) <= 10
    assert reading.rows == {"schedules": N}
    assert reading.indexes("schedules") == {"schedules_pkey"}


class Explaining:
    """A connection that notes what each query of a cursor reads."""

    def __init__(self, connection: Connection) -> None:
        self.readings: list[Reading] = []
        self._connection = connection
        self.execute = connection.execute

    def cursor(self, row_factory: Any = dict_row) -> Any:
        noting, connection = self, self._connection

        class Cursor:
            def execute(self, query: str, values: Any = None, **options: Any) -> Any:
                noting.readings.append(explain(connection, query, values))
                return connection.cursor(row_factory=row_factory).execute(query, values, **options)

        return Cursor()


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(user_id="user_7"),
        Filter(user_id="user_7", statuses=frozenset({"PENDING"})),
        Filter(job_id="00000000-0000-7000-8000-0000000f4247"),
    ],
    ids=["user", "user and status", "job"],
)
def test_a_page_of_a_listing_reads_little_more_than_it_shows(database: Database, wanted: Filter) -> None:
    connection, limit = Explaining(database.api), 20
    connection.execute("set statement_timeout = '30s'")
    search: Any = Search(connection, wanted, datetime.now(UTC), Users())  # type: ignore[arg-type]
    shown = search.page(None, limit)
    assert shown
    for reading in connection.readings:
        assert reading.scanned_in_full == {}
        largest = max(reading.rows.values(), default=0)
        assert largest <= max(2 * limit, SMALL), reading.rows


@pytest.mark.parametrize("monthly", [False, True])
def test_the_last_runs_of_a_page_of_jobs_are_looked_for_by_key_in_the_hours_that_count(
    database: Database, monthly: bool
) -> None:
    ids = uuid7s(50, (database.now - timedelta(days=14)).timestamp())
    planned = dict.fromkeys(ids, database.now) | {ids[7]: database.now - timedelta(days=10 if monthly else 0)}
    values = last_runs._values(planned, database.now - timedelta(days=14), database.now)
    explained = database.api.execute("explain " + queries.last_runs, values, prepare=False).fetchall()
    hours = set(re.findall(r" on (finished_executions_\d{8}_\d{4})", "\n".join(line for (line,) in explained)))
    assert len(hours) <= last_runs.SPAN // timedelta(hours=1) + 2
    reading = explain(database.api, queries.last_runs, values)
    assert reading.indexes("finished_executions") <= {"finished_executions_pkey"}
    assert sum(reading.rows.values()) <= len(ids)
