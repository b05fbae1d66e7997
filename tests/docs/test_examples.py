"""Every SQL example runs, as a person on call would run it; and every view and function for people has one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.docs.examples import blocks, fill_in, posts, statements
from tests.support import roles
from tests.support.api import Api, running_api
from tests.support.databases import CHECKOUT, Server
from workers import registry

README = CHECKOUT / "README.md"
JSON = {"Content-Type": "application/json"}
GUIDE = CHECKOUT / "migrations" / "README.md"
DOCUMENTS = [README, GUIDE, CHECKOUT / "workers" / "systemd" / "README.md"]


@pytest.fixture
def values(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """What stands for the placeholders: a job that has not started, a recurring one, a failed execution, a worker."""
    connection.execute("insert into pgtick.tasks (task_id, target) values ('send_email', 'mail:send')")
    connection.execute(
        "insert into pgtick.workers (name, capacity, task_keys, version) values ('host:1', 10, '{1}', '0')"
    )
    row = connection.execute(
        "select pgtick.create_job('send_email', '2030-01-01T00:00:00Z')::text,"
        " pgtick.create_job('send_email', '0 10 * * *')::text, pgtick.create_job('send_email')"
    ).fetchone()
    assert row is not None
    once, recurring, failed = row
    # As a planner leaves it.
    connection.execute("update pgtick.schedules set next_run_at = now() + interval '1 hour', zone_version = '2026a'")
    execution_id = connection.execute(
        "with gone as (delete from pgtick.pending_executions where job_id = %s returning *)"
        " insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
        " finished_at, error)"
        " select job_id, scheduled_at, user_id, task_key, 'FAILED', 4, due_at, now(), 'timed out after 30 s' from gone"
        " returning pgtick.execution_id(scheduled_at, job_id)",
        [failed],
    ).fetchone()
    assert execution_id is not None
    return {"job_id": once, "recurring_job_id": recurring, "execution_id": execution_id[0], "worker": "host"}


@pytest.fixture
def api(dsn: str) -> Iterator[Api]:
    with running_api(dsn) as api:
        yield api


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_every_example_runs_as_an_operator(
    server: Server, owner_dsn: str, connection: psycopg.Connection[Any], values: dict[str, str], document: Path
) -> None:
    roles.make(server.admin)
    connection.execute("select pgtick.grant_roles()")
    with psycopg.connect(roles.address(owner_dsn, "operator"), autocommit=True) as operator:
        for statement in statements(document):
            operator.execute(fill_in(statement, values))  # type: ignore[arg-type]


def test_the_tasks_of_the_readme_take_the_jobs_it_posts(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "registered", {})
    registry.load(["workers.tasks.examples"])
    for code in blocks(README, "python"):
        exec(code, {"__name__": "shop.tasks"})
    query = "insert into pgtick.tasks (task_id, target, parameters_schema) values (%s, %s, %s)"
    for known in registry.registered.values():
        schema = None if known.schema is None else json.dumps(known.schema)
        api.services.pool.run(lambda c, t=known, s=schema: c.execute(query, [t.task_id, t.target, s]))  # type: ignore[misc]
    answers = [(path, api.call(method, path, data=body, headers=JSON)) for method, path, body in posts(README)]
    assert {path for path, _ in answers} == {"/jobs", "/tasks/bill", "/operations"}
    assert [(path, answer.text) for path, answer in answers if answer.status_code >= 300] == []


def test_the_guide_shows_every_view_and_everything_an_operator_may_call(
    server: Server, connection: psycopg.Connection[Any]
) -> None:
    roles.make(server.admin)
    connection.execute("select pgtick.grant_roles()")
    found = connection.execute(
        "select viewname from pg_views where schemaname = 'pgtick' union"
        " select proname from pg_proc where pronamespace = 'pgtick'::regnamespace and provolatile = 'v'"
        " and has_function_privilege('pgtick_operator', oid, 'execute') and proname <> 'ensure_partitions'"
    )
    examples = "\n".join(statements(GUIDE))
    assert [name for (name,) in found.fetchall() if f"pgtick.{name}" not in examples] == []
