"""The dashboard as an HTTP client sees it: headers, forgery, errors in words, text that stays text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import psycopg
import pytest
from flask.testing import FlaskClient
from psycopg.types.json import Jsonb
from werkzeug.test import TestResponse

from app.dashboard import site
from app.domain.execution import ExecutionId
from app.store import tokens
from tests.support.api import running_api
from tests.support.databases import Server

EVIL = """"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}</title></textarea>"""
PAGES = (
    *("/", "/ui/executions", "/ui/jobs", "/ui/jobs/new", "/ui/schedules", "/ui/tasks", "/ui/workers", "/ui/database"),
    *("/ui/login", "/ui/nothing", "/ui/find?id=x", "/ui/jobs?status=x", "/ui/executions?start_time=x"),
)


class Tags(HTMLParser):
    """What a browser would act on: names of elements and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.scripts: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "script":
            self.scripts.append(dict(attrs))


@pytest.fixture(scope="module")
def dsn_of_module(server: Server, template: str) -> Iterator[str]:
    with server.database(template) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("insert into pgtick.tasks (task_id, target) values ('t', 'x')")
        yield dsn


@pytest.fixture
def client(dsn_of_module: str) -> Iterator[FlaskClient]:
    with running_api(dsn_of_module) as api:
        site.install(api.app)
        yield api.app.test_client()


@pytest.fixture
def connection(dsn_of_module: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn_of_module, autocommit=True) as connection:
        yield connection


def csrf(client: FlaskClient, page: str = "/ui/jobs/new") -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(page).text)
    assert found is not None
    return found[1]


def send(client: FlaskClient, path: str, form: dict[str, str] | None = None, **headers: str) -> TestResponse:
    given = {"csrf": csrf(client)} | (form or {})
    return client.post(path, data=given, headers=headers)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_a_strict_policy_and_keeps_it(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (200, 404)
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    tags = Tags(answer.text)
    assert not {name for name in tags.attributes if name.startswith("on") or name == "style"}
    assert "style" not in tags.names
    assert all((one["src"] or "").startswith("/ui/static/") for one in tags.scripts)
    assert not re.search(r"(src|href)=.(https?:)?//", answer.text)


def test_the_api_keeps_its_addresses(client: FlaskClient) -> None:
    for path in ("/jobs", "/executions", "/tasks", "/healthz"):
        assert client.get(path).is_json
    assert client.get("/nothing").mimetype == "application/problem+json"


def test_static_files_may_be_kept_and_change_their_address(client: FlaskClient) -> None:
    address = re.search(r'href="(/ui/static/style\.css\?v=\w+)"', client.get("/").text)
    assert address is not None
    assert "immutable" in client.get(address[1]).headers["Cache-Control"]
    assert client.get("/ui/static/../blueprint.py").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/ui/jobs/new",
        "/ui/jobs/preview",
        "/ui/jobs/{id}/cancel",
        "/ui/jobs/{id}/edit",
        "/ui/workers/1/drain",
        "/ui/tasks/t/pause",
    ],
)
def test_a_form_of_another_site_does_nothing(client: FlaskClient, connection: psycopg.Connection, path: str) -> None:
    job_id = connection.execute("select pgtick.create_job('t', '0 0 1 1 *')").fetchone()[0]  # type: ignore[index]
    path = path.format(id=job_id)
    count = "select count(*) filter (where cancelled_at is null) from pgtick.jobs"
    before = connection.execute(count).fetchone()
    good = csrf(client)
    for form, headers in (
        ({}, {}),
        ({"csrf": ""}, {}),
        ({"csrf": "x" * 43}, {}),
        ({"csrf": good}, {"Origin": "https://evil.example"}),
        ({"csrf": good}, {"Origin": "null"}),
        ({"csrf": good}, {"Sec-Fetch-Site": "cross-site"}),
        ({"csrf": good}, {"Sec-Fetch-Site": "same-site"}),
    ):
        given = {"task_id": "t", "when": "now", "parameters": "{}"} | form
        answer = client.post(path, data=given, headers=headers)
        assert answer.status_code == 403, (form, headers)
        assert "too old" in answer.text
    for cookie in ("", "short"):  # of nobody who saw a form of ours
        client.set_cookie("pgtick_csrf", cookie)
        answer = client.post(path, data={"task_id": "t", "when": "now", "parameters": "{}", "csrf": cookie})
        assert answer.status_code == 403
    assert connection.execute(count).fetchone() == before


def test_a_form_of_our_own_makes_a_job(client: FlaskClient, connection: psycopg.Connection) -> None:
    form = {"task_id": "t", "when": "cron", "expression": "0 10 * * *", "timezone": "Europe/Berlin"}
    form |= {"parameters": '{"digits": 1.10}', "user_id": "ida", "max_retries": "2", "overlap": "allow"}
    answer = send(client, "/ui/jobs/new", form, **{"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 303, answer.text
    job_id = answer.headers["Location"].removeprefix("/ui/jobs/").partition("?")[0]
    row = connection.execute(
        "select user_id, expression, timezone, parameters::text, max_retries, policies from pgtick.jobs"
        " where job_id = %s",
        [job_id],
    ).fetchone()
    assert row == ("ida", "0 10 * * *", "Europe/Berlin", '{"digits": 1.10}', 2, {"overlap": "allow"})


@pytest.mark.parametrize(
    ("form", "place", "rule"),
    [
        ({"task_id": "nobody"}, "task_id", "no task"),
        ({"when": "cron", "expression": "* * *"}, "expression", ""),
        ({"when": "cron", "expression": "0 0 30 2 *"}, "expression", ""),
        ({"when": "date", "date": ""}, "date", ""),
        ({"when": "cron", "expression": "@daily", "timezone": "Mars/Olympus"}, "timezone", "not a time zone"),
        ({"parameters": "[]"}, "parameters", "object"),
        ({"parameters": "{"}, "parameters", "is not JSON"),
        ({"parameters": '{}, "user_id": "root"'}, "parameters", "is not JSON"),
        ({"parameters": '{"a": NaN}'}, "parameters", "NaN"),
        ({"max_retries": "many"}, "max_retries", "must be a number"),
        ({"max_retries": "-1"}, "max_retries", ""),
        ({"timeout_s": "inf"}, "timeout_s", ""),
        ({"jitter_s": "-5"}, "jitter_s", ""),
    ],
)
def test_a_form_that_is_wrong_says_where(client: FlaskClient, form: dict[str, str], place: str, rule: str) -> None:
    given = {"task_id": "t", "when": "now", "parameters": "{}"} | form
    answer = send(client, "/ui/jobs/new", given)
    assert answer.status_code == 422
    told = re.search(rf'data-fault="{place}">([^<]+)<', answer.text)
    assert told is not None, answer.text
    assert rule in told[1]
    # What was typed is still there.
    for text in form.values():
        assert text.replace('"', "&#34;") in answer.text
    shown = send(client, "/ui/jobs/preview", given)
    assert f'data-field="{place}"' in shown.text


def test_acts_that_make_no_sense_any_more_are_refused_in_words(
    client: FlaskClient, connection: psycopg.Connection
) -> None:
    job_id = connection.execute("select pgtick.create_job('t', '0 0 1 1 *')").fetchone()[0]  # type: ignore[index]
    assert send(client, f"/ui/jobs/{job_id}/cancel").status_code == 303
    for verb in ("cancel", "pause", "resume", "run-now", "skip"):
        answer = send(client, f"/ui/jobs/{job_id}/{verb}")
        assert answer.status_code == 409
        assert "look again" in answer.text
    assert client.get("/ui/jobs/01a22b40-bc8d-7a70-9b34-932b6c6eb555").status_code == 404
    assert client.get("/ui/executions/nonsense").status_code == 404
    assert send(client, "/ui/workers/4711/drain").status_code == 404


def test_a_task_is_paused_with_a_note_that_others_see_and_resumed(client: FlaskClient) -> None:
    assert "/ui/tasks/t/pause" in client.get("/ui/tasks").text
    assert "Pause this task?" in client.get("/ui/tasks/t/pause").text
    sent = send(client, "/ui/tasks/t/pause", {"note": EVIL})
    assert sent.status_code == 303
    assert "The task is paused." in client.get(sent.headers["Location"]).text
    shown = client.get("/ui/tasks").text
    assert "/ui/tasks/t/resume" in shown
    assert "alert(1)&lt;/script&gt;" in shown
    assert "onerror" not in Tags(shown).attributes
    assert "alert(1)&lt;/script&gt;" in client.get("/ui/tasks/t/resume").text
    assert send(client, "/ui/tasks/t/pause").status_code == 409
    assert send(client, "/ui/tasks/t/resume").status_code == 303
    assert "/ui/tasks/t/pause" in client.get("/ui/tasks").text
    assert send(client, "/ui/tasks/nope/pause").status_code == 404


def test_a_read_only_dashboard_offers_and_does_nothing(dsn_of_module: str, connection: psycopg.Connection) -> None:
    job_id = connection.execute("select pgtick.create_job('t', '0 0 1 1 *')").fetchone()[0]  # type: ignore[index]
    with running_api(dsn_of_module, dashboard_read_only=True) as api:
        site.install(api.app)
        client = api.app.test_client()
        page = client.get(f"/ui/jobs/{job_id}").text
        assert "read only" in page
        for word in ("/pause", "/cancel", "/edit", "/ui/jobs/new", "Drain"):
            assert word not in page
        for path in (
            f"/ui/jobs/{job_id}/cancel",
            f"/ui/jobs/{job_id}/edit",
            "/ui/jobs/new",
            "/ui/workers/1/drain",
            "/ui/tasks/t/pause",
        ):
            answer = send(client, path, {"task_id": "t", "parameters": "{}"})
            assert answer.status_code == 403
            assert "read only" in answer.text
    row = connection.execute("select cancelled_at from pgtick.jobs where job_id = %s", [job_id]).fetchone()
    assert row == (None,)


def test_whoever_may_only_look_can_log_in(dsn_of_module: str, connection: psycopg.Connection) -> None:
    _, token = tokens.add(connection, "ida", "laptop")
    with running_api(dsn_of_module, dashboard_read_only=True, tokens=True) as api:
        site.install(api.app)
        client = api.app.test_client()
        good = csrf(client, "/ui/login")
        assert client.post("/ui/login", data={"csrf": good, "token": token}).headers["Location"] == "/"
        assert client.get("/ui/jobs").status_code == 200


def test_a_users_token_finds_nothing_of_another_user_at_any_address(
    dsn_of_module: str, connection: psycopg.Connection
) -> None:
    job_id = connection.execute("select pgtick.create_job('t', '0 0 1 1 *', '{}', 'bob')::text").fetchone()[0]  # type: ignore[index]
    once = connection.execute("select pgtick.create_job('t', 'now', '{}', 'bob')::text").fetchone()[0]  # type: ignore[index]
    row = connection.execute("select scheduled_at from pgtick.pending_executions where job_id = %s", [once]).fetchone()
    assert row is not None
    values = {"job_id": job_id, "execution_id": str(ExecutionId(row[0], once))}
    _, token = tokens.add(connection, "ida", "laptop")
    asked = 0
    with running_api(dsn_of_module, tokens=True) as api:
        site.install(api.app)
        client = api.app.test_client()
        good = csrf(client, "/ui/login")
        assert client.post("/ui/login", data={"csrf": good, "token": token}).headers["Location"] == "/"
        for rule in api.app.url_map.iter_rules():
            if not rule.endpoint.startswith("dashboard.") or not rule.arguments & values.keys():
                continue
            pattern = re.sub(r"<(job_id|execution_id)>", lambda found: values[found[1]], rule.rule)
            choice = re.search(r"<any\((.+)\):verb>", pattern)
            verbs = [verb.strip(" '") for verb in choice[1].split(",")] if choice else [""]
            for path in (pattern.replace(choice[0], verb) if choice else pattern for verb in verbs):
                for method in rule.methods - {"HEAD", "OPTIONS"}:
                    answer = client.open(path, method=method, data={"csrf": good, "parameters": "{}"})
                    assert answer.status_code == 404, (method, path, answer.status_code)
                    asked += 1
        assert asked >= 15
        for path in ("/", "/ui/executions", "/ui/jobs", "/ui/schedules", "/ui/workers", "/ui/tasks"):
            page = client.get(path)
            assert page.status_code == 200
            assert "bob" not in page.text
            assert job_id not in page.text
        assert client.get("/ui/executions?user_id=bob").status_code == 404
        assert client.get("/ui/database").status_code == 403
        assert send(client, "/ui/workers/1/drain").status_code == 403
        assert send(client, "/ui/tasks/t/pause").status_code == 403
    left = connection.execute(
        "select count(*) from pgtick.jobs where user_id = 'bob' and cancelled_at is null"
    ).fetchone()
    assert left == (2,)


def test_without_a_token_every_page_leads_to_the_login(dsn_of_module: str) -> None:
    with running_api(dsn_of_module, tokens=True) as api:
        site.install(api.app)
        client = api.app.test_client()
        for path in PAGES:
            if path != "/ui/login":
                answer = client.get(path)
                assert answer.status_code == 303
                assert answer.headers["Location"].startswith("/ui/login")
        assert client.get("/ui/static/style.css").status_code == 200
        client.set_cookie("pgtick_token", "pgtick_1_" + "x" * 43)
        assert client.get("/ui/jobs").status_code == 303


def test_a_login_sends_nobody_to_another_site(client: FlaskClient) -> None:
    from app.dashboard.pages.login import _own_page

    for address in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "\\evil", ""):
        assert _own_page(address) == "/"
    assert _own_page("/ui/jobs?status=FAILED") == "/ui/jobs?status=FAILED"


def test_cookies_are_out_of_reach_of_scripts_and_of_other_sites(client: FlaskClient) -> None:
    cookie = client.get("/ui/jobs/new").headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    elsewhere = client.get("/ui/jobs/new", base_url="http://pgtick.example.com").headers["Set-Cookie"]
    assert "Secure" in elsewhere


def test_times_are_in_the_viewers_zone(client: FlaskClient, connection: psycopg.Connection) -> None:
    job_id = connection.execute("select pgtick.create_job('t', '2031-07-01 12:00:00Z')").fetchone()[0]  # type: ignore[index]
    client.set_cookie("pgtick_zone", "Asia/Kolkata")
    page = client.get(f"/ui/jobs/{job_id}").text
    assert 'datetime="2031-07-01T12:00:00Z" title="Tue 01 Jul 2031 12:00:00.000 UTC"' in page
    assert "17:30:00" in page
    client.set_cookie("pgtick_zone", "../../etc/passwd")
    assert 'data-zone="UTC"' in client.get(f"/ui/jobs/{job_id}").text


def test_a_recurring_job_that_fails_is_headed_as_failed_and_lists_what_is_due(
    client: FlaskClient, connection: psycopg.Connection
) -> None:
    job_id = connection.execute("select pgtick.create_job('t', '* * * * * *', '{}', 'failing')::text").fetchone()[0]  # type: ignore[index]
    for table, more, value in (
        ("finished_executions", ", status, attempt, finished_at", "'FAILED', 1, now()"),
        ("pending_executions", "", ""),
    ):
        start = "interval '-5 seconds'" if value else "interval '5 seconds'"
        connection.execute(
            f"insert into pgtick.{table} (job_id, scheduled_at, due_at, user_id, task_key{more})"
            f" select %s, at, at, 'failing', task_key{', ' + value if value else ''} from pgtick.tasks,"
            f" generate_series(now() + {start}, now() + {start} + interval '3 seconds', interval '1 second') as at"
            " where task_id = 't'",
            [job_id],
        )
    connection.execute(
        "update pgtick.schedules set next_run_at = now() + interval '9 seconds' where job_id = %s", [job_id]
    )
    page = client.get(f"/ui/jobs/{job_id}").text
    heading = page[page.index("<h1") : page.index("</h1>")]
    assert 'class="status failed"' in heading
    assert "last run failed" in heading
    table = page[page.index('id="runs"') :]
    assert table.count('class="status failed"') == 4
    assert 'class="status pending"' not in table
    listed = client.get("/ui/jobs?user_id=failing").text
    assert 'class="status failed"' in listed
    assert '<th scope="col">Last run</th>' in listed


def test_what_was_left_out_is_no_error_and_what_is_paused_has_no_next_run(
    client: FlaskClient, connection: psycopg.Connection
) -> None:
    made = connection.execute("select pgtick.create_job('t', '7 3 * * *', '{}', 'lea')::text").fetchone()
    assert made is not None
    connection.execute(
        "insert into pgtick.finished_executions"
        " (job_id, scheduled_at, due_at, user_id, task_key, status, attempt, finished_at, error)"
        " select %s, now(), now(), 'lea', task_key, 'SKIPPED', 0, now(), 'left out'"
        " from pgtick.tasks where task_id = 't'",
        made,
    )
    assert '<td class="wide error reason">left out</td>' in client.get("/ui/executions?user_id=lea").text
    link = f'href="/ui/jobs/{made[0]}">'
    connection.execute("update pgtick.schedules set next_run_at = now() where job_id = %s", made)
    assert f"{link}<time" in client.get("/ui/schedules").text
    connection.execute("update pgtick.schedules set paused_at = now() where job_id = %s", made)
    assert f"{link}none<" in client.get("/ui/schedules").text


def test_what_is_tried_again_is_told_on_the_first_page(client: FlaskClient, connection: psycopg.Connection) -> None:
    connection.execute("delete from pgtick.finished_executions")
    connection.execute(
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, attempt)"
        " select pgtick.uuid7(), now(), now() + n * interval '20 seconds', 'ida', task_key, 1"
        " from pgtick.tasks, generate_series(1, 3) n where task_id = 't'"
    )
    page = client.get("/").text
    assert '<dt>Retrying</dt><dd><a href="/ui/executions?status=RETRYING">3</a>' in page
    assert "Nothing failed for good" in page
    connection.execute("select pgtick.pause_task('t')")
    page = client.get("/").text
    assert '<dt>Retrying</dt><dd><a href="/ui/executions?status=RETRYING">3</a>' in page, "held back, too"
    connection.execute("select pgtick.resume_task('t')")
    connection.execute("delete from pgtick.pending_executions where attempt > 0")
    page = client.get("/").text
    assert "<dt>Retrying</dt><dd>0</dd>" in page


def test_the_first_page_says_that_a_task_is_paused(client: FlaskClient, connection: psycopg.Connection) -> None:
    assert "paused" not in client.get("/").text
    connection.execute("select pgtick.pause_task('t')")
    assert "1 task is paused and starts nothing." in client.get("/").text
    connection.execute("select pgtick.resume_task('t')")
    assert "paused" not in client.get("/").text


def test_times_in_findings_are_in_the_viewers_zone(client: FlaskClient, connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into pgtick.findings (kind, subject, sentence) values ('k', 's', 'Open since 2031-07-01 12:00:07+00.')"
    )
    client.set_cookie("pgtick_zone", "Asia/Kolkata")
    for path in ("/", "/ui/database"):
        page = client.get(path).text
        assert "12:00:07+00" not in page
        assert "17:30:07" in page
        assert "in UTC on hover" in page
    client.set_cookie("pgtick_zone", "UTC")
    assert "in UTC on hover" not in client.get("/").text


def test_a_new_job_begins_with_the_parameters_of_its_task(client: FlaskClient, connection: psycopg.Connection) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string"}, "cc": {"type": "array"}}, "required": ["to"]}
    connection.execute(
        "insert into pgtick.tasks (task_id, target, parameters_schema) values ('mail', 'x', %s)", [Jsonb(schema)]
    )
    page = client.get("/ui/jobs/new?task_id=mail").text
    assert '<option value="mail"' in page
    assert "mail (no live worker knows it)</option>" in page
    typed = re.search(r"<textarea[^>]+>([^<]*)</textarea>", page)
    assert typed is not None
    assert html.unescape(typed[1]) == '{\n  "to": ""\n}'
    assert "to (string), required; cc (array)</small>" in page
    assert "{&#34;kept&#34;: 1}</textarea>" in client.get('/ui/jobs/new?task_id=mail&parameters={"kept": 1}').text
    assert "gone (not registered)</option>" in client.get("/ui/jobs/new?task_id=gone").text


def test_a_refusal_is_a_sentence(client: FlaskClient) -> None:
    page = client.get("/ui/jobs/01a22b40-bc8d-7a70-9b34-932b6c6eb555").text
    assert "<p>There is no such job.</p>" in page
    assert "verdict" not in page


def test_without_a_database_pages_say_so() -> None:
    with running_api("host=127.0.0.1 port=1 dbname=none") as api:
        site.install(api.app)
        answer = api.app.test_client().get("/")
    assert answer.status_code == 503
    assert '<div class="verdict bad"><h1>The database does not answer</h1>' in answer.text
    assert "data-refresh" in answer.text
    assert "data-trouble" in answer.text


def test_text_of_users_stays_text(client: FlaskClient, connection: psycopg.Connection) -> None:
    row = connection.execute(
        "select pgtick.create_job('t', '0 0 1 1 *', %s, %s)", [Jsonb({EVIL: [EVIL]}), EVIL]
    ).fetchone()
    assert row is not None
    connection.execute("update pgtick.schedules set paused_at = now(), paused_note = %s", [EVIL])
    connection.execute("insert into pgtick.findings values ('x', 'x', %s) on conflict do nothing", [EVIL])
    paths = ["/", "/ui/jobs", "/ui/schedules", f"/ui/jobs/{row[0]}", f"/ui/jobs/{row[0]}/edit"]
    form = {"task_id": EVIL, "when": "cron", "expression": EVIL, "timezone": EVIL, "parameters": EVIL, "user_id": EVIL}
    answers = [*map(client.get, paths), send(client, "/ui/jobs/new", form)]
    answers += [client.get("/ui/executions", query_string={"user_id": EVIL, "task_id": EVIL, "error": EVIL})]
    answers += [client.get("/ui/jobs/new", query_string=form), client.get("/ui/find", query_string={"id": EVIL})]
    for answer in answers:
        tags = Tags(answer.text)
        assert "img" not in tags.names
        assert len(tags.scripts) == 1
        assert "onerror" not in tags.attributes
        assert "alert(1)&lt;/script&gt;" in answer.text
