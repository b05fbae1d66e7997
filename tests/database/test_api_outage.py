"""The API while its database is away, and when it comes back."""

from __future__ import annotations

import socket
import time
from typing import Any

import psycopg
import pytest

from app.store.connections import NO_SCHEMA
from tests.support.api import Api, running_api
from tests.support.databases import Server

Connection = psycopg.Connection[Any]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/jobs"), ("GET", "/jobs"), ("GET", "/healthz"), ("GET", "/tasks")]
)
@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_without_a_database_it_is_503_within_2_s(method: str, path: str, how: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if how == "is silent":
            listener.listen()
        address = f"postgresql://x@127.0.0.1:{listener.getsockname()[1]}/x"
        with running_api(address) as api:
            began = time.monotonic()
            answer = api.call(method, path, json={"task_id": "t"} if method == "POST" else None)
            # The promise is 2 s; the rest is for other tests that want the same two cores.
            assert time.monotonic() - began < 3
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/jobs"), ("GET", "/jobs"), ("GET", "/healthz"), ("GET", "/tasks"), ("GET", "/executions")],
)
def test_a_database_that_is_not_migrated_is_503_and_says_so(server: Server, method: str, path: str) -> None:
    with server.database() as dsn, running_api(dsn) as api:
        answer = api.call(method, path, json={"task_id": "t"} if method == "POST" else None)
        assert answer.status_code == 503
        assert answer.json is not None
        assert answer.json["detail"] == NO_SCHEMA


def test_clients_do_not_notice_that_connections_were_cut(api: Api, connection: Connection) -> None:
    for n in range(3):
        api.created(parameters={"n": n})
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
            " and datname = current_database() and backend_type = 'client backend'"
        )
        api.get("/jobs")
    assert connection.execute("select count(*) from pgtick.jobs").fetchone() == (3,)


def test_a_server_that_turned_read_only_is_left(api: Api, connection: Connection) -> None:
    """As after a switchover: connections that stayed with the old primary are given up for new ones."""
    pool = api.services.pool

    def turn_read_only(c: Connection) -> int:
        c.execute("set default_transaction_read_only = on")
        return c.info.backend_pid

    turned = pool.run(turn_read_only)
    for _ in range(5):
        api.created()
    assert turned not in {pool.run(lambda c: c.info.backend_pid) for _ in range(10)}


def test_a_health_check_tells_of_workers_and_findings(api: Api, connection: Connection) -> None:
    assert api.get("/healthz") == {"status": "ok", "database": "ok", "workers": 0, "findings": []}
    connection.execute("insert into pgtick.workers (name, capacity, version) values ('w', 1, '0')")
    connection.execute(
        "insert into pgtick.workers (name, capacity, version, last_seen_at)"
        " values ('dead', 1, '0', now() - interval '1 hour')"
    )
    connection.execute("insert into pgtick.findings (kind, subject, sentence) values ('k', 's', 'Do this.')")
    health = api.get("/healthz")
    assert health["workers"] == 1
    assert [finding["sentence"] for finding in health["findings"]] == ["Do this."]


def test_tasks_are_listed_with_whether_a_worker_serves_them(api: Api, connection: Connection) -> None:
    connection.execute("insert into pgtick.workers (name, capacity, version, task_keys) values ('w', 1, '0', '{1}')")
    assert [(task["task_id"], task["served"]) for task in api.get("/tasks")["tasks"]] == [
        ("make_report", False),
        ("send_email", True),
    ]


def test_a_fault_of_ours_is_logged_once_and_told_without_its_insides(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> object:
        raise KeyError("select secret from pgtick.users")

    monkeypatch.setattr("app.store.health.read", broken)
    answer = api.call("GET", "/healthz")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert [record.message for record in caplog.records] == ["request_failed"]
