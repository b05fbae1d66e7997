"""Retention and archive: what is past retention leaves the database, is in the archive once, and comes back equal."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from app.archive.archivist import Archivist
from app.archive.files import Archive, ArchiveError, Manifest, file_of
from app.settings import Settings
from tests.support.databases import CHECKOUT
from tests.support.object_store import s3_bucket

pytestmark = pytest.mark.slow

Connection = psycopg.Connection[Any]

COLUMNS = "job_id, scheduled_at, user_id, status, error, errors, result"
EXECUTIONS = int(os.environ.get("ARCHIVE_EXECUTIONS", "20000"))
"""How many the test with kills writes: a million by hand, fewer each time."""


@pytest.fixture(autouse=True)
def old_executions(connection: Connection) -> None:
    """Some hours to put them in, 40 days ago."""
    connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'x')")
    connection.execute(
        "select pgtick.make_partition('finished_executions', hour, hour + interval '1 hour')"
        " from generate_series(0, 4) n, date_trunc('hour', now() - interval '40 days' + n * interval '1 hour')"
        " as hour"
    )


def fill(connection: Connection, count: int) -> None:
    """Four hours of executions, 40 days ago, with everything that CSV could mistake."""
    connection.execute(
        """
        insert into pgtick.finished_executions
            (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at, error, errors, result)
        select pgtick.uuid7(), at, 'u' || n %% 3, 1, case n %% 5 when 0 then 'FAILED' else 'COMPLETED' end, 1, at, at,
               case n %% 5 when 0 then E'a "quoted", \\n second line; \\u00e9 \\\\N' when 1 then '' end,
               case n %% 5 when 0 then '[{"error": "a, b"}]'::jsonb end, case n %% 2 when 0 then to_jsonb(n) end
        from generate_series(1, %(count)s) n
        cross join lateral (
            select date_trunc('hour', now()) - interval '40 days' + n * (interval '4 hours' / %(count)s) as at
        ) t
        """,
        {"count": count},
    )


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as url:
        yield url


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for an archive; tests in BOTH places say which."""
    if getattr(request, "param", "folder") == "folder":
        return str(tmp_path / "archive")
    return f"{request.getfixturevalue('bucket')}/{uuid4()}"


BOTH = pytest.mark.parametrize("where", ["folder", "s3"], indirect=True)


@pytest.fixture
def settings(dsn: str, where: str) -> Settings:
    return Settings(database_url=dsn, archive=where)


@pytest.fixture
def archive(settings: Settings) -> Archive:
    return Archive(settings.archive)


def count(connection: Connection, table: str) -> int:
    row = connection.execute(f"select count(*) from {table}").fetchone()  # type: ignore[arg-type]
    assert row is not None
    return int(row[0])


def run(connection: Connection, settings: Settings) -> None:
    """Until nothing is left: one run takes out some partitions."""
    while True:
        Archivist(settings).run()
        left = connection.execute(
            "select exists (select from pgtick.partitions where parent in ('finished_executions', 'jobs')"
            " and partition <> 'jobs_standing' and until_at < now() - interval '30 days')"
        ).fetchone()
        if left == (False,):
            return


def all_restored(connection: Connection, archive: Archive, schema: str = "pgtick_archive") -> None:
    for manifest in archive.manifests():
        archive.restore(connection, manifest.name, schema)
    union = " union all ".join(f"table {schema}.{m.name}" for m in archive.manifests())
    connection.execute(f"create view public.restored as {union}")  # type: ignore[arg-type]


@BOTH
def test_what_is_past_retention_is_archived_once_and_restores_equal(
    connection: Connection, settings: Settings, archive: Archive, where: str
) -> None:
    fill(connection, 1000)
    connection.execute("create table public.before as table pgtick.finished_executions")
    run(connection, settings)
    assert count(connection, "pgtick.finished_executions") == 0
    assert count(connection, "pgtick.archives where written_at is null or dropped_at is null") == 0
    assert sum(manifest.rows for manifest in archive.manifests()) == 1000
    assert count(connection, f"pgtick.archives where location not like '%{where}/%' or bytes < 1") == 0
    all_restored(connection, archive)
    assert count(connection, "(table public.before except all table public.restored) x") == 0
    assert count(connection, "(table public.restored except all table public.before) x") == 0


def test_what_is_younger_stays(connection: Connection, settings: Settings, archive: Archive) -> None:
    connection.execute(
        "select pgtick.make_partition('finished_executions', hour, hour + interval '1 hour')"
        " from date_trunc('hour', now() - interval '29 days') as hour"
    )
    connection.execute(
        "insert into pgtick.finished_executions"
        " (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at)"
        " select pgtick.uuid7(), now() - interval '29 days', 'u', 1, 'COMPLETED', 1, now(), now()"
    )
    run(connection, settings)
    assert count(connection, "pgtick.finished_executions") == 1
    assert sum(manifest.rows for manifest in archive.manifests()) == 0


def test_without_an_archive_it_is_dropped(connection: Connection, settings: Settings, dsn: str) -> None:
    fill(connection, 100)
    run(connection, Settings(database_url=dsn))
    assert count(connection, "pgtick.finished_executions") == 0
    assert connection.execute(
        "select count(*) from pg_class where relname like 'past_%' and relkind = 'r'"
    ).fetchone() == (0,)


@BOTH
def test_a_file_that_was_altered_is_noticed(connection: Connection, settings: Settings, archive: Archive) -> None:
    fill(connection, 100)
    run(connection, settings)
    manifest = next(m for m in archive.manifests() if m.rows)
    other = next(m for m in archive.manifests() if m.rows and m != manifest)
    with archive.place.open(file_of(other.parent, other.name)) as file:
        altered = file.read()
    with archive.place.writing(file_of(manifest.parent, manifest.name)) as file:
        file.write(altered)
    with pytest.raises(ArchiveError, match=manifest.name):
        archive.restore(connection, manifest.name)
    assert connection.execute("select to_regclass(%s)", [f"pgtick_archive.{manifest.name}"]).fetchone() == (None,)


@BOTH
def test_a_file_counts_for_nothing_until_it_was_compared(
    connection: Connection, settings: Settings, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(connection, 100)

    def differs(self: Archive, manifest: Manifest) -> None:
        assert self.place.size(file_of(manifest.parent, manifest.name)), "it is written"
        raise ArchiveError("differs")

    with monkeypatch.context() as broken:
        broken.setattr(Archive, "check", differs)
        with pytest.raises(ArchiveError, match="differs"):
            Archivist(settings).run()
    assert archive.manifests() == []
    assert count(connection, "pgtick.archives where written_at is not null or dropped_at is not null") == 0
    run(connection, settings)
    assert sum(manifest.rows for manifest in archive.manifests()) == 100
    for manifest in archive.manifests():
        archive.check(manifest)


def test_a_partition_with_other_rows_than_were_archived_is_not_dropped(
    connection: Connection, settings: Settings
) -> None:
    fill(connection, 4)
    partition = connection.execute(
        "select c.relname from pgtick.finished_executions f join pg_class c on c.oid = f.tableoid limit 1"
    ).fetchone()
    assert partition is not None
    past = connection.execute("select pgtick.detach_partition(%s)", partition).fetchone()
    assert past is not None
    with pytest.raises(psycopg.errors.DataException, match="rows, not the 7"):
        connection.execute("select pgtick.drop_past(%s, 7)", past)
    assert count(connection, f"pgtick.{past[0]}") > 0


@pytest.fixture
def environment(settings: Settings) -> dict[str, str]:
    return os.environ | {
        "DATABASE_URL": settings.database_url,
        "PGTICK_ARCHIVE": settings.archive,
        "PGTICK_LOG_LEVEL": "error",
    }


def pgtick(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from app.cli import main; main()", *arguments]
    return subprocess.Popen(command, cwd=CHECKOUT, env=environment, text=True, stdout=subprocess.PIPE)


def output(environment: dict[str, str], *arguments: str) -> Iterator[str]:
    process = pgtick(environment, *arguments)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return iter(text.splitlines())


@BOTH
@pytest.mark.timeout(600)
def test_killed_at_three_random_points_every_row_is_in_the_archive_or_a_table_once(
    connection: Connection, settings: Settings, archive: Archive, environment: dict[str, str]
) -> None:
    fill(connection, EXECUTIONS)
    connection.execute("create table public.before as table pgtick.finished_executions")
    chance = random.Random(EXECUTIONS)
    ends = []
    for _ in range(3):
        process = pgtick(environment, "archive", "run")
        # From when it has begun, so that it is killed at work.
        busy = "pgtick.archives where dropped_at is null"
        while process.poll() is None and count(connection, busy) == 0:
            time.sleep(0.005)
        time.sleep(chance.random() * EXECUTIONS / 500_000)
        process.send_signal(signal.SIGKILL)
        ends.append(process.wait())
        connection.execute("update pgtick.archives set claimed_until = null")
    assert -signal.SIGKILL in ends
    run(connection, settings)
    assert count(connection, "pgtick.finished_executions") == 0
    all_restored(connection, archive)
    assert count(connection, "(table public.before except all table public.restored) x") == 0
    assert count(connection, "public.restored") == EXECUTIONS


@BOTH
def test_list_query_and_restore_from_the_command_line(
    connection: Connection, settings: Settings, environment: dict[str, str], owner_dsn: str
) -> None:
    fill(connection, 100)
    row = connection.execute(
        "select job_id::text, error, result from pgtick.finished_executions where status = 'FAILED' limit 1"
    ).fetchone()
    assert row is not None
    job_id, error, result = row
    run(connection, settings)
    names = [line.split()[0] for line in output(environment, "archive", "list", "--check") if " 0 rows" not in line]
    assert len(names) in (4, 5)
    (found,) = map(json.loads, output(environment, "archive", "query", "--job", job_id))
    assert (found["status"], found["error"], found["result"]) == ("FAILED", error, str(result or ""))
    assert len(list(output(environment, "archive", "query", "--status", "FAILED", "--limit", "7"))) == 7
    assert list(output(environment, "archive", "query", "--since", "2090-01-01")) == []
    owner = environment | {"DATABASE_URL": owner_dsn}  # who may make a schema
    (told,) = output(owner, "archive", "restore", names[0])
    restored = count(connection, f"pgtick_archive.{names[0]}")
    assert told == f"{restored} rows are in pgtick_archive.{names[0]}"
    assert restored > 0


# ── days of jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def old_job(connection: Connection, days_ago: int, expression: str | None = None) -> str:
    row = connection.execute(
        "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, expression, run_at, created_at)"
        " values (pgtick.uuid7(now() - %(ago)s * interval '1 day'), 'u', 'send_email', %(type)s, %(expression)s,"
        " %(run_at)s, now() - %(ago)s * interval '1 day') returning job_id::text",
        {
            "ago": days_ago,
            "type": "CRON" if expression else "NOW",
            "expression": expression,
            "run_at": None if expression else "2026-01-01Z",
        },
    ).fetchone()
    assert row is not None
    return str(row[0])


def stand(connection: Connection, job_id: str) -> None:
    connection.execute(
        "insert into pgtick.schedules (job_id, user_id, task_key, expression) values (%s, 'u', 1, '0 0 * * *')",
        [job_id],
    )


@pytest.fixture
def old_days(connection: Connection) -> None:
    connection.execute(
        "select pgtick.make_partition('jobs', day, day + interval '1 day') from unnest(array[38, 37, 36, 30, 3]) ago,"
        " lateral (select date_bin('1 day', now(), '2000-01-01Z') - ago * interval '1 day') as t (day)"
    )


@pytest.mark.usefixtures("old_days")
def test_days_of_jobs_are_archived_but_for_those_that_stand_wait_or_run(
    connection: Connection, settings: Settings, archive: Archive
) -> None:
    over = [old_job(connection, days) for days in (38, 37, 37)]
    standing, waiting, running = (old_job(connection, days, "0 0 * * *") for days in (38, 37, 36))
    young = old_job(connection, 3)
    stand(connection, standing)
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key)"
        " values (%s, now(), now(), 'u', 1)",
        [waiting],
    )
    connection.execute(
        "insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority,"
        " attempt, losses, suspect, worker_id, lease_expires_at)"
        " values (1, %s, now(), now(), 'u', 1, 2, 1, 0, false, 1, now())",
        [running],
    )
    run(connection, settings)
    left = {str(job_id) for (job_id,) in connection.execute("select job_id from pgtick.jobs").fetchall()}
    assert left == {standing, waiting, running, young}
    assert {row["job_id"] for row in archive.query("jobs")} == set(over)
    assert count(connection, "pgtick.jobs_standing") == 3
    # What stood until now leaves with the next day.
    connection.execute("delete from pgtick.schedules")
    connection.execute("select pgtick.retire_jobs(now() - interval '29 days')")
    day = connection.execute("select name from pgtick.archives where dropped_at is null and parent = 'jobs'").fetchone()
    for change, swept in (("now()", 0), ("null", 1)):  # what was edited just now may stand again in a moment
        connection.execute(f"update pgtick.jobs_standing set updated_at = {change} where job_id = %s", [standing])
        assert connection.execute("select pgtick.sweep_standing(%s)", day).fetchone() == (swept,)
    assert count(connection, f"pgtick.jobs where job_id = '{standing}'") == 0


@pytest.mark.usefixtures("old_days")
def test_new_jobs_and_edits_go_on_while_and_after_days_are_retired(connection: Connection, settings: Settings) -> None:
    standing = old_job(connection, 38, "0 0 * * *")
    stand(connection, standing)
    run(connection, settings)
    connection.execute("select pgtick.create_job('send_email')")
    connection.execute("select pgtick.pause_job(%s)", [standing])
    connection.execute("select pgtick.ensure_partitions()")
    assert connection.execute("select pgtick.cancel_job(%s) is not null", [standing]).fetchone() == (True,)


@pytest.mark.usefixtures("old_days")
def test_a_partition_is_archived_by_one_process_at_a_time(connection: Connection) -> None:
    past = connection.execute("select pgtick.retire_jobs(now() - interval '30 days')").fetchone()
    claim = "select pgtick.claim_past(%s)"
    assert connection.execute(claim, ["host:1"]).fetchone() == past
    assert connection.execute(claim, ["host:2"]).fetchone() == (None,)
    assert connection.execute(claim, ["host:1"]).fetchone() == past, "goes on where it was"
    connection.execute("update pgtick.archives set claimed_until = now() - interval '1 s'")
    assert connection.execute(claim, ["host:2"]).fetchone() == past, "the other has died"


@pytest.mark.usefixtures("old_days")
def test_idempotency_keys_go_with_their_jobs(connection: Connection, settings: Settings) -> None:
    over, standing, young = old_job(connection, 38), old_job(connection, 38, "0 0 * * *"), old_job(connection, 3)
    stand(connection, standing)
    made = {"over": [over], "one stands": [over, standing], "young": [young], "young, and its job is gone": [over]}
    made |= {"an operation": ["17"]}
    for key, ids in made.items():
        connection.execute(
            "insert into pgtick.idempotency_keys (user_id, key, body_hash, response, created_at)"
            " values ('u', %s, '', %s, now() - %s * interval '1 day')",
            [key, Jsonb({"job_ids": ids}), 3 if key.startswith("young") else 38],
        )
    run(connection, settings)
    left = connection.execute("select key from pgtick.idempotency_keys order by key").fetchall()
    assert left == [("one stands",), ("young",), ("young, and its job is gone",)]


def test_the_last_day_is_never_retired(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"^before: "):
        connection.execute("select pgtick.retire_jobs(now())")
