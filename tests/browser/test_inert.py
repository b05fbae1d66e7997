"""Text from users, tasks and errors is text wherever it is shown, also with script in every field."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
from psycopg.types.json import Jsonb

from app.domain.execution import ExecutionId
from tests.browser.driving import Browser
from tests.browser.serving import serving
from tests.support.databases import Server

EVIL = """"'></textarea></script></title><script>window.pwned=1</script><img src=x onerror="window.pwned=2">{{ 7*7 }}"""


def plant(connection: psycopg.Connection) -> list[str]:
    """Puts it wherever somebody else may write; returns the pages that show it."""
    execute = connection.execute
    execute("select pgtick.ensure_partitions()")
    execute("insert into pgtick.tasks (task_id, target, description, queue) values ('t', 'x', %s, %s)", [EVIL, EVIL])
    execute("insert into pgtick.users (user_id) values (%s)", [EVIL])
    execute("insert into pgtick.findings values (%s, %s, %s)", [EVIL] * 3)
    execute(
        "insert into pgtick.workers (name, capacity, running, task_keys, queues, version)"
        " select %s, 10, 1, array_agg(task_key), %s, %s from pgtick.tasks",
        [EVIL, [EVIL], EVIL],
    )
    row = execute("select pgtick.create_job('t', 'now', %s, %s)", [Jsonb({EVIL: EVIL}), EVIL]).fetchone()
    cron = execute("select pgtick.create_job('t', '0 0 1 1 *', %s, %s)", [Jsonb({EVIL: EVIL}), EVIL]).fetchone()
    assert row is not None
    assert cron is not None
    execute("update pgtick.schedules set paused_at = now(), paused_note = %s", [EVIL])
    error = Jsonb([{"attempt": 1, "error": EVIL, "trace": EVIL, "at": EVIL}, EVIL, 7])
    moved = execute(
        """
        with gone as (delete from pgtick.pending_executions returning *)
        insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,
            started_at, finished_at, worker_id, error, errors, result, origin)
        select job_id, scheduled_at, user_id, task_key, 'FAILED', 1, due_at, now(), now(), 1, %s, %s, %s, %s from gone
        returning job_id::text, scheduled_at
        """,
        [EVIL, error, Jsonb({EVIL: EVIL}), EVIL],
    ).fetchone()
    assert moved is not None
    execute(
        """
        insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key, priority,
            attempt, losses, suspect, worker_id, lease_expires_at, progress)
        select 1, %s, now(), now(), %s, task_key, 2, 1, 0, false, 1, now() + interval '1 hour', %s from pgtick.tasks
        """,
        [cron[0], EVIL, Jsonb({EVIL: EVIL})],
    )
    run = str(ExecutionId(moved[1], moved[0]))
    return [
        *("/", "/ui/executions", "/ui/jobs", "/ui/schedules", "/ui/tasks", "/ui/workers", "/ui/database"),
        *(f"/ui/executions/{run}", f"/ui/executions/{run}/rerun", f"/ui/jobs/{moved[0]}", f"/ui/jobs/{cron[0]}"),
        *(f"/ui/jobs/{cron[0]}/cancel", "/ui/workers/1/drain"),
    ]


def test_script_in_every_field_stays_text(server: Server, template: str, browser: Browser) -> None:
    with server.database(template) as dsn, serving(dsn) as base, psycopg.connect(dsn, autocommit=True) as connection:
        pages = plant(connection)
        evil = quote(EVIL, safe="")
        pages += [
            f"/ui/find?id={evil}",
            f"/ui/login?next={evil}",
            f"/ui/executions?user_id={evil}&task_id={evil}&start_time={evil}",
            f"/ui/jobs?user_id={evil}",
            f"/ui/jobs/new?task_id=t&parameters={evil}&expression={evil}&timezone={evil}&when={evil}",
            f"/ui/jobs/{evil}",
            f"/ui/{evil}",
            f"/ui/schedules?state={evil}&after={evil}",
        ]
        browser.visit(base)
        for page in pages:
            browser.open(page)
            facts = browser.driver.execute_script(
                """
                return {
                    pwned: window.pwned ?? null,
                    scripts: [...document.scripts].filter((s) => !s.src).length,
                    images: document.images.length,
                    handlers: [...document.querySelectorAll('*')]
                        .flatMap((e) => [...e.attributes]).filter((a) => /^on|^style$/.test(a.name)).length,
                }
                """
            )
            assert facts["pwned"] is None, page
            assert facts["scripts"] == facts["images"] == facts["handlers"] == 0, page
            shown = browser.driver.execute_script("return document.documentElement.textContent + document.title")
            if page in pages[:1] or page.startswith("/ui/executions/"):
                assert "window.pwned=1" in shown, f"{page} does not show it at all"
        assert [line for line in browser.complaints() if "Content Security Policy" in line] == []
