"""Acting on executions: on one, and on many by filter."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.api import Api, Rows
from tests.support.waiting import eventually

Connection = psycopg.Connection[Any]


@pytest.fixture
def rows(api: Api, connection: Connection) -> Rows:
    return Rows(connection)


def execution_id(api: Api, job_id: str) -> str:
    [item] = api.get(f"/jobs/{job_id}/executions")["executions"]
    return str(item["execution_id"])


def act(api: Api, action: str, where: dict[str, Any], **more: Any) -> Any:
    return api.call("POST", "/operations", json={"action": action, "filter": where, **more})


def test_an_execution_is_cancelled_and_cancelling_it_again_changes_nothing(api: Api, rows: Rows) -> None:
    job_id = rows.job()
    rows.pending(job_id, 3600)
    path = f"/executions/{execution_id(api, job_id)}/cancel"
    for _ in range(2):
        answer = api.call("POST", path)
        assert (answer.status_code, answer.json["status"]) == (200, "CANCELLED")


def test_one_that_runs_is_told_to_stop(api: Api, rows: Rows, connection: Connection) -> None:
    job_id = rows.job()
    rows.running(job_id, 0)
    answer = api.call("POST", f"/executions/{execution_id(api, job_id)}/cancel")
    assert (answer.status_code, answer.json["status"]) == (202, "IN_PROGRESS")
    assert connection.execute("select cancel_requested_at is not null from pgtick.running_executions").fetchone() == (
        True,
    )


def test_what_is_over_cannot_be_cancelled_nor_what_is_not_run_again(api: Api, rows: Rows) -> None:
    over, waiting = rows.job(), rows.job()
    rows.finished(over, 0)
    rows.pending(waiting, 3600)
    assert api.call("POST", f"/executions/{execution_id(api, over)}/cancel").status_code == 409
    assert api.call("POST", f"/executions/{execution_id(api, waiting)}/rerun").status_code == 409
    for verb in ("cancel", "rerun"):
        for name in ("x", f"1-{over}", f"{10**17}-01a22b71-1d75-740f-a9c2-cdb05c1549c9"):
            assert api.call("POST", f"/executions/{name}/{verb}").status_code == 404


def test_a_failed_execution_runs_again_as_a_new_one_that_names_it(api: Api, rows: Rows) -> None:
    job_id = rows.job()
    rows.finished(job_id, 0, "FAILED", error="boom")
    old = execution_id(api, job_id)
    headers = {"Idempotency-Key": "again"}
    answers = [api.call("POST", f"/executions/{old}/rerun", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    new = answers[0].json
    assert new["origin"] == f"retry of {old}"
    assert (new["status"], new["job_id"]) == ("PENDING", job_id)
    assert answers[0].headers["Location"] == f"/executions/{new['execution_id']}"
    assert answers[1].json["execution_id"] == new["execution_id"], "the same key, the same execution"
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert api.get(f"/executions/{old}")["status"] == "FAILED"
    assert api.call("POST", f"/executions/{old}/rerun").json["execution_id"] != new["execution_id"]


def test_what_stands_in_a_schedule_is_cancelled_if_it_is_a_single_run(api: Api, connection: Connection) -> None:
    """It is listed as PENDING, though there is no partition for it yet."""
    for schedule, status in (("2030-01-01T00:00:00Z", 200), ("0 0 1 1 *", 409)):
        job_id = api.created(schedule=schedule)["job_id"]
        path = f"/executions/{execution_id(api, job_id)}"
        answer = api.call("POST", f"{path}/cancel")
        assert answer.status_code == status, answer.json
        assert api.get(path)["status"] == ("CANCELLED" if status == 200 else "PENDING")
    assert "skip it instead" in answer.json["detail"]


def test_cancelling_one_by_hand_is_on_record(connection: Connection, rows: Rows) -> None:
    job_id = rows.job()
    rows.pending(job_id, 3600)
    (at,) = connection.execute("select scheduled_at from pgtick.pending_executions").fetchone() or ()
    assert connection.execute("select pgtick.cancel_execution(%s, %s)", [job_id, at]).fetchone() == ("CANCELLED",)
    entry = connection.execute("select action, subject from pgtick.audit_log").fetchone()
    assert entry == ("cancel_execution", f"{int(at.timestamp() * 1_000_000)}-{job_id}")


def test_many_are_cancelled_after_they_were_counted(api: Api, rows: Rows, connection: Connection) -> None:
    mine = [rows.job("ann") for _ in range(4)]
    rows.pending(mine[0], 100)
    rows.pending(mine[1], 200, attempt=1)
    rows.running(mine[2], 0)
    rows.standing(mine[3], 10**7)
    other = rows.job("bob")
    rows.pending(other, 100)
    where = {"user_id": "ann"}
    counted = act(api, "cancel", where, dry_run=True)
    assert (counted.status_code, counted.json) == (200, {"action": "cancel", "dry_run": True, "matched": 4})
    assert connection.execute("select count(*) from pgtick.operations").fetchone() == (0,)
    answer = act(api, "cancel", where)
    assert answer.status_code == 202
    assert (answer.json["state"], answer.json["matched"], answer.json["done"]) == ("FINISHED", 4, 4)
    assert answer.json["filter"] == {"user_id": "ann", "statuses": ["PENDING", "RETRYING", "IN_PROGRESS"]}
    assert api.get(answer.headers["Location"]) == answer.json
    assert api.get("/operations")["operations"] == [answer.json]
    statuses = {job: api.get(f"/jobs/{job}")["status"] for job in [*mine, other]}
    assert statuses == dict.fromkeys(mine, "CANCELLED") | {mine[2]: "IN_PROGRESS", other: "PENDING"}
    assert act(api, "cancel", where, dry_run=True).json["matched"] == 0


def test_failed_ones_run_again_once_by_user_task_window_and_error(api: Api, rows: Rows, connection: Connection) -> None:
    for n in range(12):
        job_id = rows.job("ann" if n % 2 else "bob", "send_email" if n % 3 else "make_report")
        rows.finished(job_id, n, "FAILED" if n < 10 else "COMPLETED", error=f"Boom at {n}" if n < 10 else None)
    for where, matched in (
        ({"user_id": "ann"}, 5),
        ({"task_id": "make_report"}, 4),
        ({"error": "boom AT 7"}, 1),
        ({"start_time": rows.at(2).isoformat(), "end_time": rows.at(5).isoformat()}, 3),
        ({"status": ["cancelled", "failed"]}, 10),
    ):
        assert act(api, "rerun", where, dry_run=True).json["matched"] == matched, where
    answer = act(api, "rerun", {"user_id": "ann"})
    assert (answer.json["done"], answer.json["refused"]) == (5, 0)
    assert act(api, "rerun", {"user_id": "ann"}, dry_run=True).json["matched"] == 0, "each once"
    origins = connection.execute("select count(distinct origin) from pgtick.pending_executions").fetchone()
    assert origins == (5,)
    rows.finish_everything()
    assert act(api, "rerun", {"user_id": "ann"}, dry_run=True).json["matched"] == 0, "nor when that is over"


def test_single_runs_are_moved_and_recurring_ones_are_not(api: Api, rows: Rows) -> None:
    job = api.created(user_id="ann", schedule="2030-01-01T00:00:00Z")["job_id"]
    soon = rows.job("ann")
    rows.pending(soon, 3600)
    recurring = rows.job("ann", expression="* * * * *")
    rows.pending(recurring, 3600)
    at = rows.at(7200).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    answer = act(api, "reschedule", {"user_id": "ann"}, at=at)
    assert (answer.json["matched"], answer.json["done"], answer.json["state"]) == (2, 2, "FINISHED")
    for job_id in (job, soon):
        assert api.get(f"/jobs/{job_id}")["execution"]["scheduled_at"] == at
    assert api.get(f"/jobs/{recurring}")["execution"]["scheduled_at"] != at


def test_a_large_operation_is_worked_off_in_batches_and_can_be_stopped(api: Api, connection: Connection) -> None:
    api.call("POST", "/jobs/batch", json=[{"task_id": "send_email", "user_id": "ann", "schedule": "2030-01-01T00:00Z"}])
    connection.execute(
        "select count(pgtick.create_job('send_email', to_char(now() + interval '1 h', 'YYYY-MM-DD\"T\"HH24:MI:SSOF'),"
        " user_id => 'ann')) from generate_series(1, 1200)"
    )
    answer = act(api, "cancel", {"user_id": "ann"})
    assert (answer.json["state"], answer.json["matched"], answer.json["done"]) == ("RUNNING", 1201, 500)
    path = answer.headers["Location"]
    assert connection.execute("select pgtick.operate(300)").fetchone() == (True,)
    shown = api.get(path)
    assert (shown["state"], shown["done"]) == ("RUNNING", 800)
    stopped = api.call("DELETE", path)
    assert (stopped.json["state"], stopped.json["problem"]) == ("FINISHED", "stopped by hand")
    assert connection.execute("select pgtick.operate(300)").fetchone() == (False,)
    rest = act(api, "cancel", {"user_id": "ann"})
    assert (rest.json["matched"], rest.json["state"], rest.json["done"]) == (401, "FINISHED", 401)


def test_an_operation_leaves_later_jobs_alone_and_ends_with_what_cannot_be_done(
    rows: Rows, connection: Connection
) -> None:
    gone = rows.job("ann")
    rows.pending(gone, 3600)
    connection.execute("update pgtick.jobs set task_id = 'no_more'")
    connection.execute(
        "insert into pgtick.operations (action, filter, at, matched)"
        ' values (\'reschedule\', \'{"user_id": "ann", "statuses": ["PENDING"]}\', now() + interval \'2 h\', 1)'
    )
    later_on = "select clock_timestamp() > created_at + interval '2 ms' from pgtick.operations"
    eventually(lambda: connection.execute(later_on).fetchone() == (True,))  # ids of jobs count milliseconds
    later = rows.job("ann")
    rows.pending(later, 3600)
    matching = "select m.job_id::text from pgtick.operations o cross join lateral pgtick.matching(o, 10) as m"
    assert connection.execute(matching).fetchall() == [(gone,)]
    assert connection.execute("select pgtick.operate(1)").fetchone() == (True,)
    ended = connection.execute("select done, refused, problem, finished_at is not null from pgtick.operations")
    assert ended.fetchall() == [(0, 1, 'task_id: no task "no_more" is registered', True)]
    assert connection.execute("select count(*) from pgtick.pending_executions").fetchone() == (2,)


def test_an_operation_on_what_runs_and_a_report_of_it_wait_for_each_other_in_no_circle(
    rows: Rows, connection: Connection, owner_dsn: str
) -> None:
    for _ in range(2):
        rows.running(rows.job("ann"), 0)
    connection.execute("update pgtick.running_executions set claim_id = 10 - claim_id")
    first, second = sorted(connection.execute("select claim_id from pgtick.running_executions").fetchall())
    connection.execute(
        "insert into pgtick.operations (action, filter, matched) values ('cancel', %s, 2)",
        [Jsonb({"user_id": "ann", "statuses": ["IN_PROGRESS"]})],
    )
    report = "delete from pgtick.running_executions where claim_id = %s"
    with psycopg.connect(owner_dsn) as reporting, psycopg.connect(owner_dsn, autocommit=True) as operating:
        reporting.execute(report, first)
        theirs = threading.Thread(target=lambda: operating.execute("select pgtick.operate(10)"))
        theirs.start()
        blocked = "select cardinality(pg_blocking_pids(%s)) > 0"
        eventually(lambda: connection.execute(blocked, [operating.info.backend_pid]).fetchone() == (True,))
        reporting.execute(report, second)
        reporting.commit()
        theirs.join()
    ended = connection.execute("select done, refused, problem like '% is no more' from pgtick.operations")
    assert ended.fetchall() == [(0, 2, True)], "both were reported meanwhile"


def test_what_ends_while_it_is_being_cancelled_was_not_cancelled(api: Api, rows: Rows, connection: Connection) -> None:
    for _ in range(2):
        rows.pending(rows.job("ann"), 1)
    blocks = "select exists (select from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid)))"
    with ThreadPoolExecutor(1) as pool:
        with connection.transaction():
            rows.finish_everything()
            answer = pool.submit(act, api, "cancel", {"user_id": "ann"})
            eventually(lambda: connection.execute(blocks).fetchone() == (True,))
        ended = answer.result().json
    assert (ended["state"], ended["matched"], ended["done"], ended["refused"]) == ("FINISHED", 2, 0, 2)
    assert ended["problem"].endswith(" is over: COMPLETED")


def test_what_moved_on_before_its_turn_is_counted_in_the_end(rows: Rows, connection: Connection) -> None:
    rows.pending(rows.job("ann"), 3600)
    connection.execute(
        "insert into pgtick.operations (action, filter, matched, created_at)"
        ' values (\'cancel\', \'{"user_id": "ann", "statuses": ["PENDING"]}\', 3, now() + interval \'1 s\')'
    )
    assert connection.execute("select pgtick.operate(1)").fetchone() == (True,)
    unfinished = connection.execute("select done, refused, finished_at from pgtick.operations")
    assert unfinished.fetchall() == [(1, 0, None)]
    assert connection.execute("select pgtick.operate(1)").fetchone() == (True,)
    ended = connection.execute("select done, refused, finished_at is not null from pgtick.operations")
    assert ended.fetchall() == [(1, 2, True)]


def test_an_operation_that_makes_no_sense_ends_with_its_problem_and_others_have_their_turn(
    rows: Rows, connection: Connection
) -> None:
    rows.pending(rows.job("ann"), 3600)
    for task_key in ("send_email", None):
        connection.execute(
            "insert into pgtick.operations (action, filter, matched) values ('cancel', %s, 1)",
            [Jsonb({"task_key": task_key, "statuses": ["PENDING"]})],
        )
    for _ in range(2):
        assert connection.execute("select pgtick.operate(10)").fetchone() == (True,)
    ended = connection.execute(
        "select done, problem, finished_at is not null from pgtick.operations order by operation_id"
    )
    assert ended.fetchall() == [(0, 'invalid input syntax for type integer: "send_email"', True), (1, None, True)]


def test_the_same_operation_with_one_key_is_done_once(api: Api, rows: Rows) -> None:
    for _ in range(2):
        rows.finished(rows.job(), 0, "FAILED")
    body = {"action": "rerun", "filter": {"user_id": "ann"}}
    answers = [api.call("POST", "/operations", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert answers[0].json["operation_id"] == answers[1].json["operation_id"]
    assert len(api.get("/executions", status="PENDING")["executions"]) == 2
    body["filter"] = {"user_id": "bob"}
    assert api.call("POST", "/operations", json=body, headers={"Idempotency-Key": "k"}).status_code == 409


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"action": "cancel", "filter": {}}, ["/filter"]),
        ({"action": "destroy", "filter": {"user_id": "ann"}}, ["/action"]),
        ({"action": "cancel"}, ["/filter"]),
        ({"action": "cancel", "filter": {"user": "ann"}}, ["/filter"]),
        ({"action": "cancel", "filter": {"status": ["FAILED"]}}, ["/filter/status/0"]),
        ({"action": "rerun", "filter": {"status": ["COMPLETED"]}}, ["/filter/status/0"]),
        ({"action": "reschedule", "filter": {"user_id": "ann"}}, ["/at"]),
        ({"action": "reschedule", "filter": {"user_id": "ann"}, "at": "soon"}, ["/at"]),
        ({"action": "cancel", "filter": {"user_id": "ann"}, "at": "2030-01-01T00:00Z"}, ["/at"]),
        (
            {"action": "cancel", "filter": {"task_id": "nope", "start_time": "x"}},
            ["/filter/start_time", "/filter/task_id"],
        ),
        ({"action": "cancel", "filter": {"error": "a\u0000"}}, ["/filter/error"]),
    ],
)
def test_what_is_wrong_with_an_operation_is_named(shared_api: Api, body: dict[str, Any], pointers: list[str]) -> None:
    answer = shared_api.call("POST", "/operations", json=body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json["errors"]] == pointers


def test_an_execution_that_runs_shows_its_progress(api: Api, rows: Rows, connection: Connection) -> None:
    job_id = rows.job()
    rows.running(job_id, 0)
    name = execution_id(api, job_id)
    assert api.get(f"/executions/{name}")["progress"] is None
    connection.execute("update pgtick.running_executions set progress = '{\"done\": 3}'")
    assert api.get(f"/executions/{name}")["progress"] == {"done": 3}


def test_run_now_with_one_key_runs_once(api: Api, rows: Rows) -> None:
    job_id = rows.job()
    answers = [api.call("POST", f"/jobs/{job_id}/run", headers={"Idempotency-Key": "now"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json == answers[1].json
    assert len(api.get(f"/jobs/{job_id}/executions")["executions"]) == 1
    assert api.call("POST", f"/jobs/{rows.job()}/run", headers={"Idempotency-Key": "now"}).status_code == 409
