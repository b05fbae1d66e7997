"""Jobs: add, list, show, cancel, pause, resume, run, skip, backfill, edit, next."""

from __future__ import annotations

import getpass
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import click

from app.cli.listing import filter_of, filter_options
from app.cli.output import json_option, missing, refuse, show, show_one
from app.cli.reading import TEXT, Text, instant, json_of, json_value
from app.schedule.dates import parse_storable
from app.settings import Settings
from app.store import history, job_search, monitoring, verbs
from app.store import jobs as store
from app.store.connections import connect, time_of
from app.store.idempotency import KEY, KEY_RULE
from app.store.pool import Connection
from app.store.users import Users


@click.group()
def jobs() -> None:
    """Jobs, and what can be done to them. Times are ISO 8601 with an offset."""


@jobs.command()
@click.argument("task_id")
@click.argument("parameters", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--schedule", help='A cron expression, a date, or "now", which is the default.')
@click.option("--timezone", help="A name such as Europe/Berlin.")
@click.option("--user", "user_id", help="Whose job it is.")
@click.option("--max-retries", type=int)
@click.option("--timeout-s", type=float)
@click.option("--policies", help='JSON, for example {"overlap": "allow"}.')
@click.option("--key", type=Text(KEY, KEY_RULE), help="A name for this request: once more with it makes no second job.")
@json_option
@click.pass_obj
def add(
    settings: Settings, /, task_id: str, parameters: tuple[str, ...], key: str | None, as_json: bool, **given: Any
) -> None:
    """Add a job. A VALUE that is JSON is taken as such, any other as text; prints the id of the job."""
    from app.cli.adding import add_job

    pairs = [_parameter(text) for text in parameters]
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise click.BadParameter(f"{name!r} is there {times} times", param_hint="NAME=VALUE")
    body: dict[str, Any] = {"task_id": task_id, "parameters": dict(pairs)}
    body |= {name: value for name, value in given.items() if value is not None}
    if "policies" in body:
        body["policies"] = json_of(body["policies"], "--policies")
    made = add_job(settings, body, key)
    if isinstance(made, list):
        refuse(made)
    if as_json:
        show_one(made, as_json)
    else:
        click.echo(made["job_id"])


@jobs.command("list")
@filter_options
@json_option
@click.pass_obj
def list_(settings: Settings, /, as_json: bool, limit: int, **given: Any) -> None:
    """List jobs, each with its newest execution that matches, newest first."""
    with connect(settings.database_url) as connection:
        wanted, now, users = filter_of(connection, given), time_of(connection), Users()
        page = job_search.page(connection, wanted, None, limit, now, users)
        items = page.items
        while page.next is not None and len(items) < limit:
            page = job_search.page(connection, wanted, page.next, limit - len(items), now, users)
            items += page.items
    rows = [
        item.job
        | {name: item.execution[name] for name in ("status", "scheduled_at", "attempt", "error")}
        | {"parameters": json.loads(item.job["parameters"])}
        for item in items
    ]
    columns = ("job_id", "task_id", "user_id", "status", "expression", "scheduled_at", "next_run_at", "error")
    show(rows if as_json else [_standing(row) for row in rows], columns, as_json)


def _standing(row: dict[str, Any]) -> dict[str, Any]:
    """A job whose next execution does not come stands as PAUSED, or as BROKEN with what is wrong."""
    if row["status"] != "PENDING" or not (row["paused_at"] or row["problem"]):
        return row
    word = "PAUSED" if row["paused_at"] else "BROKEN"
    return row | {"status": word, "scheduled_at": None, "error": row["error"] or row["problem"]}


@jobs.command("show")
@click.argument("job_id", type=click.UUID)
@json_option
@click.pass_obj
def show_(settings: Settings, job_id: object, as_json: bool) -> None:
    """Show one job, and in a sentence how it stands."""
    with connect(settings.database_url) as connection:
        row = store.get(connection, str(job_id))
        said = monitoring.explain(connection, str(job_id))
    if row is None:
        missing("job", job_id)
    show_one(row | {"parameters": json.loads(row["parameters"]), "explanation": said}, as_json)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.pass_obj
def cancel(settings: Settings, job_id: object) -> None:
    """Cancel what has not started, for good; what runs goes on."""
    with _acting(settings) as (connection, _):
        cancelled = verbs.cancel(connection, str(job_id))
    if cancelled is None:
        missing("job", job_id)
    click.echo("cancelled" if cancelled else "there was nothing left to cancel")


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option("--note", type=TEXT, help="Why; shown with the job.")
@click.pass_obj
def pause(settings: Settings, job_id: object, note: str | None) -> None:
    """Stop making executions; what is due or runs goes on."""
    with _acting(settings) as (connection, _):
        taken_back = verbs.pause(connection, str(job_id), note)
    click.echo(f"paused; {taken_back} pending executions were taken back")


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.pass_obj
def resume(settings: Settings, job_id: object) -> None:
    """Go on from the next time after now."""
    with _acting(settings) as (connection, _):
        click.echo("resumed" if verbs.resume(connection, str(job_id)) else "it was not paused")


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.pass_obj
def run(settings: Settings, job_id: object) -> None:
    """Run once more, now, besides the schedule."""
    with _acting(settings) as (connection, _):
        click.echo(verbs.run_now(connection, str(job_id)))


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option("--at", help="The occurrence of that time; without it, the next one.")
@click.pass_obj
def skip(settings: Settings, job_id: object, at: str | None) -> None:
    """Leave out one coming occurrence."""
    from app.api.occurrences import skip_run

    wanted = None if at is None else instant(at, "--at", parse_storable)
    with _acting(settings) as (connection, now):
        click.echo(f"{skip_run(connection, str(job_id), wanted, now)} is SKIPPED")


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option("--start", required=True, help="From this time on.")
@click.option("--end", required=True, help="Until this time, which is past.")
@click.option("--dry-run", is_flag=True, help="Only say what would be run.")
@click.pass_obj
def backfill(settings: Settings, job_id: object, start: str, end: str, dry_run: bool) -> None:
    """Run for the times of a past range for which it has not run."""
    from app.api.occurrences import backfill_runs

    low, high = instant(start, "--start", parse_storable), instant(end, "--end", parse_storable)
    with _acting(settings) as (connection, now):
        found = backfill_runs(connection, str(job_id), low, high, True, now)
    if not dry_run and found["occurrences"]:
        with connect(settings.database_url) as connection:
            history.reach_back(connection, low)
        with _acting(settings) as (connection, now):
            found = backfill_runs(connection, str(job_id), low, high, False, now)
    click.echo("\n".join(found["times"]))
    click.echo(f"{found['occurrences']} occurrences, {found['made']} executions made", err=True)


@jobs.command()
@click.argument("job_id", type=click.UUID)
@click.option("--schedule", help='A cron expression, a date, or "now".')
@click.option("--timezone", help="A name such as Europe/Berlin.")
@click.option("--parameters", help="JSON; replaces all of them.")
@click.option("--policies", help='JSON; those that are named change, null is the default: {"overlap": "allow"}.')
@click.option("--max-retries", type=int)
@click.option("--timeout-s", type=float)
@click.pass_obj
def edit(settings: Settings, /, job_id: object, **given: Any) -> None:
    """Change what is given; pending executions ahead are replaced, what is due or runs goes on."""
    from app.api import editing, parameters
    from app.api.services import Services

    changes = {name: value for name, value in given.items() if value is not None}
    for name in {"parameters", "policies"} & changes.keys():
        changes[name] = json_of(changes[name], f"--{name}")
    with closing(Services.make(settings)) as services, _acting(settings) as (connection, now):
        check = partial(parameters.faults, services.tasks)
        changed = editing.edit(connection, str(job_id), json.dumps(changes).encode(), now, check)
    if isinstance(changed, list):
        refuse(changed)
    click.echo("changed" if changed else "nothing changed")


@jobs.command("next")
@click.argument("job_id", type=click.UUID)
@click.option("-n", default=10, show_default=True, type=click.IntRange(1, 100))
@click.pass_obj
def next_(settings: Settings, job_id: object, n: int) -> None:
    """Show the next runs, in UTC and in the job's zone."""
    from app.api.occurrences import next_runs

    with _acting(settings) as (connection, now):
        show_runs(next_runs(connection, str(job_id), n, now))


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="NAME=VALUE")
    try:
        return name, json_value(value, name)
    except ValueError:
        return name, value


def show_runs(found: dict[str, Any]) -> None:
    """A description and its runs, one a line."""
    click.echo(found["description"])
    for run in found["runs"]:
        click.echo("  ".join(filter(None, (run["at"], run["local"], run["note"]))))


@contextmanager
def _acting(settings: Settings) -> Iterator[tuple[Connection, datetime]]:
    """A transaction in the name of whoever sits here, and the database's time."""
    with connect(settings.database_url) as connection, verbs.acting(connection, getpass.getuser()):
        yield connection, time_of(connection)


commands = [jobs]
