"""A database that looks like a busy day: 10,000 executions, failures, late ones, schedules in every state."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from app.domain.execution import ExecutionId
from app.domain.ids import uuid7s
from app.schedule import horizon

EXECUTIONS = 10_000
TASKS = {
    "send_email": ("Sends one e-mail through the mail gateway.", "default", 0.4, 0.01),
    "resize_image": ("Makes the thumbnails of an uploaded image.", "media", 1.8, 0.004),
    "sync_crm": ("Copies what changed into the CRM.", "default", 6.0, 0.03),
    "charge_card": ("Charges a card for one invoice.", "payments", 0.9, 0.012),
    "nightly_report": ("Writes the report of the day and mails it.", "reports", 42.0, 0.0),
    "purge_sessions": (None, "default", 0.2, 0.0),
}
UNSERVED = "export_ledger"
"""A task that no worker knows: what waits for it is late."""
USERS = ("acme", "globex", "initech", "umbrella", "default")
ERRORS = {
    "send_email": "SMTPServerDisconnected: Connection unexpectedly closed",
    "resize_image": "UnidentifiedImageError: cannot identify image file '/uploads/9f31.heic'",
    "sync_crm": "HTTPError: 429 Too Many Requests for url: https://crm.example.com/v3/contacts",
    "charge_card": "CardDeclined: insufficient_funds (invoice INV-20931)",
}
TRACE = """Traceback (most recent call last):
  File "/srv/app/tasks/billing.py", line 88, in charge_card
    receipt = gateway.charge(invoice.amount, token=card.token)
  File "/srv/app/gateway.py", line 41, in charge
    raise CardDeclined(answer["code"])
app.gateway.CardDeclined: insufficient_funds (invoice INV-20931)"""
SCHEDULES = (
    ("nightly_report", "0 6 * * 1-5", "Europe/Berlin", "acme"),
    ("nightly_report", "30 2 * * *", "America/New_York", "globex"),
    ("sync_crm", "*/15 * * * *", "UTC", "initech"),
    ("sync_crm", "0 8-18 * * 1-5", "Europe/London", "umbrella"),
    ("purge_sessions", "0 * * * *", "UTC", "default"),
    ("send_email", "0 9 1 * *", "Asia/Tokyo", "acme"),
    ("send_email", "0 10 * * *", "Europe/Berlin", "globex"),
    ("resize_image", "@every 10m", "UTC", "umbrella"),
    ("charge_card", "0 0 L * *", "UTC", "acme"),
)
_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 60_000)


def fill(connection: psycopg.Connection, executions: int = EXECUTIONS) -> dict[str, str]:
    """Fills a migrated, empty database; returns ids of things worth a page of their own."""
    chance = random.Random(8)
    connection.execute("select pgtick.ensure_partitions(since => now() - interval '26 hours')")
    now: datetime = connection.execute("select now()").fetchone()[0]  # type: ignore[index]
    keys = _tasks(connection)
    workers = _workers(connection, [key for task, key in keys.items() if task != UNSERVED])
    found = _history(connection, chance, keys, workers, now, executions)
    _statistics(connection, chance, keys, workers, now)
    found |= _schedules(connection, keys, now)
    found |= _present(connection, keys, workers, now)
    connection.execute(
        "insert into pgtick.findings (kind, subject, sentence) values ('old_snapshot', '4711', %s)",
        [
            "A transaction of psql (pid 4711, user report) has been open since 2026-11-30 14:06:07+00: VACUUM removes"
            " nothing meanwhile."
        ],
    )
    connection.execute("select pgtick.pause_task('charge_card', 'The gateway declines every card; until Bo says so')")
    connection.execute("analyze")
    return found


def beat(connection: psycopg.Connection) -> None:
    """Keeps the workers alive while somebody looks."""
    connection.execute("update pgtick.workers set last_seen_at = now() where state in ('RUNNING', 'DRAINING')")


def _tasks(connection: psycopg.Connection) -> dict[str, int]:
    for name, (description, queue, _, _) in TASKS.items():
        connection.execute(
            "insert into pgtick.tasks (task_id, target, description, queue) values (%s, %s, %s, %s)",
            [name, f"app.tasks:{name}", description, queue],
        )
    connection.execute("insert into pgtick.tasks (task_id, target) values (%s, 'app.tasks:export')", [UNSERVED])
    schema = {
        "type": "object",
        "properties": {"day": {"type": "string", "examples": ["yesterday"]}, "as": {"enum": ["pdf", "html"]}},
        "required": ["day"],
    }
    connection.execute(
        "update pgtick.tasks set parameters_schema = %s where task_id = 'nightly_report'", [Jsonb(schema)]
    )
    connection.execute("insert into pgtick.users (user_id) select unnest(%s::text[])", [list(USERS)])
    return dict(connection.execute("select task_id, task_key from pgtick.tasks").fetchall())


def _workers(connection: psycopg.Connection, keys: list[int]) -> list[int]:
    rows = [
        ("worker-1:2114", "RUNNING", 212, 1000, 9.2, None),
        ("worker-2:1987", "RUNNING", 148, 1000, 9.2, None),
        ("worker-3:2203", "DRAINING", 12, 1000, 31.0, None),
        ("worker-3:1544", "STOPPED", 0, 1000, 40.0, 31.0),
    ]
    made = []
    for name, state, running, capacity, hours, stopped in rows:
        row = connection.execute(
            """
            insert into pgtick.workers (name, state, running, capacity, task_keys, version, started_at, last_seen_at)
            values (%s, %s, %s, %s, %s, '0.1.0', now() - %s * interval '1 hour',
                    case when %s::float8 is null then now() else now() - interval '2 hours' end)
            returning worker_id
            """,
            [name, state, running, capacity, keys, hours, stopped],
        ).fetchone()
        made.append(row[0])  # type: ignore[index]
    return made


def _history(
    connection: psycopg.Connection,
    chance: random.Random,
    keys: dict[str, int],
    workers: list[int],
    now: datetime,
    executions: int,
) -> dict[str, str]:
    found = {}
    names = list(TASKS)
    moments = sorted(now - timedelta(seconds=chance.expovariate(1 / 14_000) % 86_000 + 3) for _ in range(executions))
    jobs, runs = [], []
    for at in moments:
        task = chance.choices(names, (50, 22, 10, 14, 1, 8))[0]
        _, _, mean, fails = TASKS[task]
        job_id = uuid7s(1, at.timestamp() - 1)[0]
        user = chance.choices(USERS, (30, 24, 20, 16, 10))[0]
        # The last attempt comes 158 s after the first.
        failed = chance.random() < fails and at < now - timedelta(minutes=4)
        late = max(0.0015, chance.lognormvariate(-4.6, 0.9))
        if 1500 < (now - at).total_seconds() < 1680:
            late += chance.random() * 3
        started = at + timedelta(seconds=late)
        ended = started + timedelta(seconds=mean * chance.lognormvariate(0, 0.6))
        status = "FAILED" if failed else "CANCELLED" if chance.random() < 0.003 else "COMPLETED"
        attempts = [started + timedelta(seconds=after) for after in (0, 6, 32, 158)]
        errors = [
            {"attempt": n, "error": ERRORS.get(task), "trace": TRACE, "at": (at + (ended - started)).isoformat()}
            for n, at in enumerate(attempts, 1)
        ]
        if failed:
            ended += attempts[-1] - started
        jobs.append((job_id, user, task, at, Jsonb(_parameters(task, chance)), at))
        runs.append(
            (job_id, at, user, keys[task], status, 4 if failed else 1)
            + ((attempts[-1], attempts[-1] + timedelta(milliseconds=4)) if failed else (at, started))
            + (ended, chance.choice(workers[:3]))
            + ((ERRORS[task], Jsonb(errors), None) if failed else (None, None, Jsonb({"ok": True})))
        )
        if failed and task == "charge_card":
            found["failed"] = str(ExecutionId(at, job_id))
        elif status == "COMPLETED":
            found["completed"], found["job"] = str(ExecutionId(at, job_id)), job_id
    with connection.cursor() as cursor:
        cursor.executemany(
            "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, run_at, parameters, created_at)"
            " values (%s, %s, %s, 'NOW', %s, %s, %s)",
            jobs,
        )
        cursor.executemany(
            "insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
            " started_at, finished_at, worker_id, error, errors, result)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            runs,
        )
    return found


def _statistics(
    connection: psycopg.Connection, chance: random.Random, keys: dict[str, int], workers: list[int], now: datetime
) -> None:
    """Of the last hour, busier than the history: as if most had been dropped already."""
    minute = now.replace(second=0, microsecond=0)
    rows = []
    for ago in range(61):
        for task, key in keys.items():
            if task == UNSERVED:
                continue
            lateness = [0] * (len(_BOUNDS_MS) + 1)
            started = int(chance.gauss(420 + 180 * (ago % 15 == 0), 40) * (0.2 if task == "nightly_report" else 1))
            for _ in range(started):
                late_ms = chance.lognormvariate(2.1, 0.8) + (chance.random() * 2600 if 25 <= ago <= 27 else 0)
                lateness[sum(late_ms > bound for bound in _BOUNDS_MS)] += 1
            failed = sum(chance.random() < TASKS[task][3] / 6 for _ in range(started))
            retried = failed + sum(chance.random() < TASKS[task][3] / 4 for _ in range(started))
            worker, run_ms = chance.choice(workers[:3]), int(started * TASKS[task][2] * 1000)
            when = minute - timedelta(minutes=ago)
            rows.append((when, key, worker, started, started - failed, failed, retried, run_ms, lateness))
    with connection.cursor() as cursor:
        cursor.executemany(
            "insert into pgtick.execution_stats values (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            rows,
        )


def _schedules(connection: psycopg.Connection, keys: dict[str, int], now: datetime) -> dict[str, str]:
    found = {}
    herd = [("send_email", f"{n % 5} 7 * * *", "Europe/Berlin", "acme") for n in range(30)]
    for n, (task, expression, zone, user) in enumerate((*SCHEDULES, *herd)):
        job_id = uuid7s(1, now.timestamp() - 86_000 + n)[0]
        connection.execute(
            "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, expression, timezone, parameters,"
            " created_at) values (%s, %s, %s, 'CRON', %s, %s, %s, now() - interval '40 days')",
            [job_id, user, task, expression, zone, Jsonb({"account": 4000 + n})],
        )
        connection.execute(
            "insert into pgtick.schedules (job_id, user_id, task_key, next_run_at, expression, timezone, runs,"
            " zone_version) values (%s, %s, %s, %s, %s, %s, %s, 'demo')",
            [job_id, user, keys[task], horizon.first(expression, zone, None, now), expression, zone, 40 * n],
        )
        if n == 2:
            found["recurring"] = job_id
            _runs_of(connection, job_id, user, keys[task], now)
        elif n == 7:
            found["failing"] = job_id
            _runs_of(connection, job_id, user, keys[task], now, (1, 2, 3))
        elif n == 3:
            connection.execute(
                "update pgtick.schedules set paused_at = now() - interval '2 hours', paused_note = %s"
                " where job_id = %s",
                ["The CRM is being migrated, back on Tuesday (Ida)", job_id],
            )
            found["paused"] = job_id
    return found


def _runs_of(
    connection: psycopg.Connection, job_id: str, user: str, key: int, now: datetime, failing: tuple[int, ...] = (7, 23)
) -> None:
    quarter = now.replace(minute=now.minute // 15 * 15, second=0, microsecond=0)
    for n in range(1, 60):
        at = quarter - timedelta(minutes=15 * n)
        failed = n in failing
        connection.execute(
            "insert into pgtick.finished_executions (job_id, scheduled_at, user_id, task_key, status, attempt, due_at,"
            " started_at, finished_at, worker_id, error) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, 1, %s)",
            [
                *(job_id, at, user, key, "FAILED" if failed else "COMPLETED", 4 if failed else 1, at),
                *(at + timedelta(milliseconds=12), at + timedelta(seconds=4 + n % 5 + (n % 11) * 1.7)),
                ERRORS["sync_crm"] if failed else None,
            ],
        )


def _present(connection: psycopg.Connection, keys: dict[str, int], workers: list[int], now: datetime) -> dict[str, str]:
    """What waits, retries, runs and is late now."""

    def job(task: str, user: str, at: datetime) -> str:
        job_id = uuid7s(1, at.timestamp())[0]
        connection.execute(
            "insert into pgtick.jobs (job_id, user_id, task_id, schedule_type, run_at, parameters)"
            " values (%s, %s, %s, 'NOW', %s, %s)",
            [job_id, user, task, at, Jsonb(_parameters(task, random.Random(1)))],
        )
        return job_id

    found = {}
    pending = (
        "insert into pgtick.pending_executions (job_id, scheduled_at, due_at, user_id, task_key, attempt, errors)"
        " values (%s, %s, %s, %s, %s, %s, %s)"
    )
    for n in range(3):
        at = now - timedelta(seconds=9 + 4 * n)
        job_id = job(UNSERVED, "initech", at)
        connection.execute(pending, [job_id, at, at, "initech", keys[UNSERVED], 0, None])
        found["late"] = str(ExecutionId(at, job_id))
    at = now - timedelta(seconds=80)
    job_id = job("send_email", "acme", at)
    errors = Jsonb([{"attempt": 1, "error": ERRORS["send_email"], "at": (at + timedelta(seconds=1)).isoformat()}])
    connection.execute(pending, [job_id, at, now + timedelta(seconds=45), "acme", keys["send_email"], 1, errors])
    found["retrying"] = str(ExecutionId(at, job_id))
    for n in range(40):
        at = now + timedelta(minutes=11 * n + 5)
        connection.execute(pending, [job("send_email", "globex", at), at, at, "globex", keys["send_email"], 0, None])
    for n, task in enumerate(("nightly_report", "sync_crm", "resize_image", "sync_crm", "charge_card")):
        at = now - timedelta(seconds=34 / (n + 1))
        job_id = job(task, USERS[n], at)
        connection.execute(
            "insert into pgtick.running_executions (claim_id, job_id, scheduled_at, due_at, user_id, task_key,"
            " priority, attempt, losses, suspect, worker_id, claimed_at, lease_expires_at, progress)"
            " values (%s, %s, %s, %s, %s, %s, 2, 1, 0, false, %s, %s, now() + interval '1 hour', %s)",
            [n + 1, job_id, at, at, USERS[n], keys[task], workers[n % 2], at, Jsonb({"done": n}) if n < 2 else None],
        )
        found["running"] = str(ExecutionId(at, job_id))
    return found


def _parameters(task: str, chance: random.Random) -> dict[str, Any]:
    number = chance.randrange(1000, 9999)
    return {
        "send_email": {"to": f"user{number}@example.com", "subject": "Your order has shipped", "order": number},
        "resize_image": {"key": f"uploads/{number:x}.jpg", "sizes": [128, 512, 1024]},
        "sync_crm": {"account": number, "full": False},
        "charge_card": {"invoice": f"INV-{number}", "amount": "49.00", "currency": "EUR"},
        "nightly_report": {"day": "yesterday"},
        "purge_sessions": {},
        UNSERVED: {"quarter": "2026-Q3"},
    }[task]
