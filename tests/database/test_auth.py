"""Tokens: whom the API lets in, what each role may do, and that nobody gets at anybody else's jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from app.api import auth
from app.api.application import create_app
from app.cli import pgtick
from app.errors import SettingsError
from app.settings import Settings
from app.store import tokens
from tests.database.conftest import TASKS
from tests.support.api import Api, running_api
from tests.support.databases import Server

Connection = psycopg.Connection[Any]
NOBODYS = {"tasks.index", "tasks.show", "schedules.preview"}
"""Endpoints that show what belongs to nobody: any token will do."""


class Guarded:
    """An API that asks for tokens, with jobs of ann and of bob in it."""

    def __init__(self, api: Api, connection: Connection) -> None:
        self.api = api
        self.connection = connection
        self.headers = {
            user: {"Authorization": f"Bearer {tokens.add(connection, user, 'test', role)[1]}"}
            for user, role in (("ann", None), ("bob", None), ("ops", "operator"), ("root", "admin"))
        }
        self.jobs = {user: self._job(user) for user in ("ann", "bob")}

    def _job(self, user: str) -> str:
        body = {"task_id": "send_email", "schedule": "2030-01-01T00:00:00Z"}
        answer = self.call(user, "POST", "/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json["job_id"])

    def call(self, user: str, method: str, path: str, **options: Any) -> Any:
        return self.api.call(method, path, headers=self.headers[user], **options)


@pytest.fixture(scope="module")
def guarded(server: Server, template: str) -> Iterator[Guarded]:
    with server.database(template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TASKS)
        with running_api(dsn, tokens=True) as api:
            yield Guarded(api, connection)


def routes(api: Api) -> Iterator[tuple[str, str, str, set[str]]]:
    """Every endpoint with its methods: its name, a method, its address, and the names in that."""
    for rule in api.app.url_map.iter_rules():
        for method in sorted(rule.methods - {"HEAD", "OPTIONS"}):
            yield rule.endpoint, method, rule.rule, set(rule.arguments)


def test_no_route_is_open_without_a_token_or_with_a_wrong_one(guarded: Guarded) -> None:
    good = guarded.headers["ann"]["Authorization"]
    wrong = [None, "", "Bearer", "Bearer x", "Basic YW5uOng=", good[:-1], good + "A", good.replace("Bearer ", "")]
    flipped = good[:-2] + ("A" if good[-2] != "A" else "B") + good[-1]
    for endpoint, method, path, names in routes(guarded.api):
        address = path.replace("<", "").replace(">", "") if names else path
        for header in [*wrong, flipped]:
            answer = guarded.api.call(method, address, headers={} if header is None else {"Authorization": header})
            if endpoint in auth.OPEN:
                assert answer.status_code == 200, (endpoint, header)
            else:
                assert answer.status_code == 401, (endpoint, header)
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_token_of_one_user_gets_404_for_everything_of_another(guarded: Guarded) -> None:
    theirs = guarded.jobs["bob"]
    row = guarded.call("bob", "GET", f"/jobs/{theirs}").json["execution"]
    asked = {"action": "cancel", "filter": {"status": ["IN_PROGRESS"]}}
    operation = guarded.call("bob", "POST", "/operations", json=asked).json["operation_id"]
    names = {"job_id": theirs, "execution_id": row["execution_id"], "operation_id": operation}
    for endpoint, method, path, arguments in routes(guarded.api):
        if endpoint in auth.OPEN | NOBODYS:
            continue
        if endpoint in auth.ROLE_NEEDED:
            address = path.replace("<task_id>", "x").replace("<path:task_id>", "x")
            assert guarded.call("ann", method, address).status_code == 403, endpoint
        elif arguments & names.keys():
            assert arguments <= names.keys(), f"{path}: whose is that? see app/api/auth.py"
            address = path
            for name, value in names.items():
                address = address.replace(f"<{name}>", value)
            answer = guarded.call("ann", method, address, json={})
            assert answer.status_code == 404, (method, address, answer.text)
        elif method == "GET":
            assert guarded.call("ann", method, path, query_string={"user_id": "bob"}).status_code == 404, path
            listed = guarded.call("ann", method, path).text
            assert theirs not in listed, path
            assert "bob" not in listed, path
            assert guarded.jobs["ann"] in listed or endpoint == "operations.index", path
        elif endpoint == "jobs.create":
            body = {"task_id": "send_email", "user_id": "bob"}
            assert guarded.call("ann", method, path, json=body).status_code == 403
        elif endpoint == "operations.create":
            body = {"action": "cancel", "filter": {"user_id": "bob"}}
            assert guarded.call("ann", method, path, json=body).status_code == 404
            body = {"action": "cancel", "filter": {"task_id": "send_email"}, "dry_run": True}
            assert guarded.call("ann", method, path, json=body).json["matched"] == 1, "her own"
        elif endpoint == "jobs.create_batch":
            body = [{"task_id": "send_email"}, {"task_id": "send_email", "user_id": "bob"}]
            assert guarded.call("ann", method, path, json=body).status_code == 403
        else:
            pytest.fail(f"{method} {path}: say in this test what a user's token may do there")
    count = guarded.connection.execute("select count(*) from pgtick.jobs where user_id = 'bob'").fetchone()
    assert count == (1,)
    assert guarded.call("bob", "GET", f"/jobs/{theirs}").json["status"] == "PENDING", "untouched"


def test_operators_see_and_touch_everybodys(guarded: Guarded) -> None:
    for user in ("ops", "root"):
        for job_id in guarded.jobs.values():
            assert guarded.call(user, "GET", f"/jobs/{job_id}").status_code == 200
        assert guarded.call(user, "GET", "/jobs", query_string={"user_id": "bob"}).status_code == 200
        assert guarded.call(user, "GET", "/metrics").status_code == 200
        answer = guarded.call(user, "POST", "/jobs", json={"task_id": "send_email", "user_id": "carl"})
        assert answer.json["user_id"] == "carl"
        answer = guarded.call(user, "PUT", "/tasks/bill", json={"url": "https://billing.example.com/bill"})
        assert answer.status_code == (403 if user == "ops" else 201), "tasks are the administrators'"


def test_jobs_belong_to_the_tokens_user(guarded: Guarded) -> None:
    answer = guarded.call("ann", "POST", "/jobs", json={"task_id": "send_email", "schedule": "2030-01-01T00:00:00Z"})
    assert answer.json["user_id"] == "ann"


def test_keys_of_one_user_do_not_meet_those_of_another(guarded: Guarded) -> None:
    made = set()
    for user in ("ann", "bob"):
        headers = guarded.headers[user] | {"Idempotency-Key": "same"}
        body = {"task_id": "send_email", "schedule": "2030-01-01T00:00:00Z"}
        answer = guarded.api.call("POST", "/jobs", json=body, headers=headers)
        assert answer.status_code == 201
        made.add(answer.json["job_id"])
    assert len(made) == 2


def test_revoked_and_expired_tokens_are_refused(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "LIFE_S", 0.0)
    token_id, token = tokens.add(guarded.connection, "ann", "for a while")
    header = {"Authorization": f"Bearer {token}"}
    assert guarded.api.call("GET", "/jobs", headers=header).status_code == 200
    guarded.connection.execute("update pgtick.api_tokens set expires_at = now() where token_id = %s", [token_id])
    assert guarded.api.call("GET", "/jobs", headers=header).status_code == 401
    guarded.connection.execute("update pgtick.api_tokens set expires_at = null where token_id = %s", [token_id])
    assert guarded.api.call("GET", "/jobs", headers=header).status_code == 200
    tokens.revoke(guarded.connection, token_id)
    assert guarded.api.call("GET", "/jobs", headers=header).status_code == 401
    with pytest.raises(tokens.UnknownToken):
        tokens.revoke(guarded.connection, token_id)


def test_nothing_in_the_database_is_a_token(guarded: Guarded) -> None:
    token = guarded.headers["ann"]["Authorization"].split("_", 2)[2]
    rows = guarded.connection.execute(
        "select t::text, encode(token_hash, 'escape') from pgtick.api_tokens t"
    ).fetchall()
    assert rows
    assert not any(token in column for row in rows for column in row)
    audited = guarded.connection.execute("select a::text from pgtick.audit_log a").fetchall()
    assert not any(token in line for (line,) in audited)


def test_the_health_of_a_guarded_api_tells_strangers_nothing_else(guarded: Guarded) -> None:
    guarded.connection.execute(
        "insert into pgtick.findings values ('late', 'task x', 'a secret') on conflict do nothing"
    )
    assert guarded.api.call("GET", "/healthz").json == {"status": "ok", "database": "ok", "workers": 0, "findings": []}


def test_the_api_is_not_served_to_a_network_without_tokens() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "pgtick.example"):
        with pytest.raises(SettingsError, match="PGTICK_HOST"):
            create_app(Settings(database_url="postgresql:///x", host=host))
        create_app(Settings(database_url="postgresql:///x", host=host, tokens=True))
        create_app(Settings(database_url="postgresql:///x", host=host, trust_network=True))


def test_who_asks_too_often_waits(dsn: str, connection: Connection) -> None:
    connection.execute(TASKS)
    with running_api(dsn, tokens=True, rate_limit=5.0) as api:
        guarded = Guarded(api, connection)
        statuses = [guarded.call("ann", "GET", "/tasks").status_code for _ in range(12)]
        assert statuses.count(429) >= 1
        assert set(statuses) == {200, 429}
        refused = guarded.call("ann", "GET", "/tasks")
        assert refused.headers["Retry-After"] == "1"
        assert guarded.call("bob", "GET", "/tasks").status_code == 200, "others may"
        assert {api.call("GET", "/healthz").status_code for _ in range(12)} == {200}, "whoever watches over it, too"


def test_tokens_are_made_listed_and_revoked_from_the_command_line(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", dsn)
    run = CliRunner().invoke
    made = run(pgtick, ["tokens", "add", "ann", "--role", "operator", "--name", "laptop"])
    assert made.exit_code == 0, made.output
    token = made.output.strip()
    with running_api(dsn, tokens=True) as api:
        assert api.call("GET", "/metrics", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    listed = run(pgtick, ["tokens", "list"])
    assert "laptop" in listed.output
    assert token.split("_", 2)[2] not in listed.output
    token_id = token.split("_")[1]
    assert run(pgtick, ["tokens", "revoke", token_id]).exit_code == 0
    assert run(pgtick, ["tokens", "revoke", token_id]).exit_code == 1
    with running_api(dsn, tokens=True) as api:
        assert api.call("GET", "/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 401
