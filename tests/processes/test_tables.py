"""Partitions that are missing or in use, tasks that nobody knows, and people who work on the tables by hand."""

from __future__ import annotations

from datetime import timedelta

from app.store.connections import connect
from tests.support.processes import Fleet, always
from tests.support.waiting import eventually
from workers.reporter import MOST_WAITING


def forget_partitions(fleet: Fleet, *parents: str) -> None:
    """As after days without anybody to make partitions: only long past ones are known."""
    query = "select partition from pgtick.partitions where parent = any(%s)"
    for (partition,) in fleet.connection.execute(query, [list(parents)]).fetchall():
        fleet.change_tables(f"drop table if exists pgtick.{partition}")
    fleet.connection.execute(
        "update pgtick.partition_windows set from_at = date_bin(step, now() - interval '5 days', '2000-01-01 00:00Z'),"
        " until_at = date_bin(step, now() - interval '3 days', '2000-01-01 00:00Z') where parent = any(%s)",
        [list(parents)],
    )


def test_jobs_run_although_nobody_made_partitions_for_days(fleet: Fleet) -> None:
    fleet.register()
    forget_partitions(fleet, "jobs", "pending_executions", "finished_executions", "execution_stats")
    now, past = fleet.post("quick"), fleet.post("quick", "2020-01-01T00:00:00Z")
    far = fleet.post(
        "quick", fleet.value("select to_char(now() + interval '400 days', 'YYYY-MM-DD\"T\"HH24:MI:SSTZH')")
    )
    # The beginning of an hour, and not one that is about to come.
    edge_at = "date_trunc('hour', now() + interval '5 min') + interval '1 h'"
    edge = fleet.post("quick", fleet.value(f"select to_char({edge_at}, 'YYYY-MM-DD\"T\"HH24:MI:SSTZH')"))
    fleet.start()
    fleet.until(now, "COMPLETED")
    fleet.until(past, "COMPLETED")
    assert fleet.status(far) == fleet.status(edge) == "PENDING"


def test_a_running_worker_makes_partitions_that_went_missing(fleet: Fleet) -> None:
    fleet.start(horizon_s=2)
    cron = fleet.post("quick", "* * * * * *")
    fleet.eventually("select exists (select from pgtick.finished_executions where job_id = %s)", [cron])
    forget_partitions(fleet, "pending_executions", "finished_executions")
    fleet.eventually("select count(*) > 2 from pgtick.finished_executions where job_id = %s", [cron])


def test_a_recovered_execution_finds_a_partition(fleet: Fleet) -> None:
    worker = fleet.start()
    job = fleet.post("nap", parameters={"seconds": 2.5})
    fleet.until_started(job)
    worker.kill()
    forget_partitions(fleet, "pending_executions", "finished_executions")
    fleet.start()
    assert fleet.until(job, "COMPLETED")["losses"] == 1


def test_a_long_select_stalls_neither_claims_nor_new_partitions(fleet: Fleet) -> None:
    worker = fleet.start(partitions_s=0.5)
    eventually(lambda: worker.says("partitions_made"))
    fleet.value(
        "select count(pgtick.create_job('quick', to_char((clock_timestamp() + interval '1 s' + n * interval '20 ms')"
        " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))) from generate_series(1, 300) as n"
    )
    # An hour that is over and empty, for the janitor to drop, and one that is missing, for it to make.
    fleet.value("select pgtick.ensure_partitions(since => now() - interval '5 hours')")
    with connect(fleet.dsn) as reader, reader.transaction():
        for table in ("pending_executions", "finished_executions", "jobs"):
            reader.execute(f"select count(*) from pgtick.{table}")
        eventually(lambda: worker.says("partitions_wait"))
        made = fleet.value("select pgtick.ensure_partitions(interval '50 hours')")
        assert made >= 2, "made while the SELECT is open"
        fleet.eventually("select count(*) = 300 from pgtick.finished_executions")
    assert fleet.value("select max(lateness) from pgtick.executions") < timedelta(seconds=2)
    eventually(lambda: worker.says("partition_dropped"))


def test_a_worker_leaves_what_it_does_not_know_to_others(fleet: Fleet) -> None:
    fleet.start(TASKS="", PGTICK_TASKS="workers.tasks.examples")
    fleet.connection.execute("insert into pgtick.tasks (task_id, target) values ('quick', 'x')")
    job = fleet.post("quick")
    finding = fleet.eventually(
        "select sentence from pgtick.findings where kind = 'unknown_task' and subject = 'task quick'"
    )
    assert "no live worker knows that task" in finding
    fleet.until(fleet.post("noop"), "COMPLETED")
    assert fleet.status(job) == "PENDING"
    fleet.start()
    fleet.until(job, "COMPLETED")
    fleet.eventually("select not exists (select from pgtick.findings where kind = 'unknown_task')")


def test_work_by_hand_on_the_tables_harms_nobody_else(fleet: Fleet) -> None:
    worker = fleet.start()
    held, moved, deleted, done = (fleet.post("nap", parameters={"seconds": 4}) for _ in range(4))
    for job in (held, moved, deleted, done):
        fleet.until_started(job)
    with connect(fleet.dsn) as person:
        with person.transaction():
            person.execute("select from pgtick.running_executions where job_id = %s for update", [held])
            person.execute("select from pgtick.workers for update")
            fleet.connection.execute("delete from pgtick.running_executions where job_id = %s", [deleted])
            fleet.connection.execute(
                "insert into pgtick.finished_executions"
                " (job_id, scheduled_at, user_id, task_key, status, attempt, due_at, finished_at)"
                " select job_id, scheduled_at, user_id, task_key, 'CANCELLED', 0, due_at, now()"
                " from pgtick.running_executions where job_id = %s",
                [done],
            )
            fleet.until(moved, "COMPLETED")
            fleet.until(fleet.post("quick"), "COMPLETED")
            eventually(lambda: worker.says("reports_held"))
        fleet.until(held, "COMPLETED")
    # Its lease could not be renewed while the row was locked: the report that waited comes first, or a janitor does.
    assert fleet.execution(held)["losses"] <= 1
    assert fleet.executions(deleted) == []
    assert [e["status"] for e in fleet.executions(done)] == ["CANCELLED"], "a finished row is final"


def test_a_due_row_put_in_or_moved_by_hand_runs(fleet: Fleet) -> None:
    fleet.start(sweep_s=0.2)
    job = fleet.post("quick", fleet.value("select to_char(now() + interval '30 min', 'YYYY-MM-DD\"T\"HH24:MI:SSTZH')"))
    with connect(fleet.dsn) as person, person.transaction():
        person.execute("select from pgtick.pending_executions for update")
        fleet.until(fleet.post("quick"), "COMPLETED")
    fleet.connection.execute(
        "update pgtick.pending_executions set due_at = now() - interval '1 h' where job_id = %s", [job]
    )
    moved_at = fleet.value("select clock_timestamp()")
    assert fleet.until(job, "COMPLETED")["started_at"] - moved_at < timedelta(seconds=2)


def test_a_worker_whose_outcomes_are_not_taken_claims_no_more_of_a_backlog(fleet: Fleet) -> None:
    fleet.value("select pgtick.ensure_partitions(since => now() - interval '1 h')")
    worker = fleet.start(TASKS="", PGTICK_TASKS="tests.bench.tasks")
    running = "select count(*) from pgtick.running_executions"
    with connect(fleet.owner) as person:
        with person.transaction():
            person.execute("lock table pgtick.finished_executions in share mode")
            fleet.backlog(3 * MOST_WAITING, apart_s=0.001)
            fleet.eventually(f"select ({running}) > %s", [MOST_WAITING])
            always(lambda: fleet.value(running) < 1.5 * MOST_WAITING, seconds=2)
        fleet.eventually(
            "select count(*) = %s from pgtick.finished_executions where status = 'COMPLETED'", [3 * MOST_WAITING]
        )
    assert fleet.value("select sum(losses) from pgtick.finished_executions") == 0
    assert worker.process.poll() is None
