"""`pgtick`, the command line: a file per noun; commands read DATABASE_URL and PGTICK_* like API and workers do."""

from __future__ import annotations

import sys

import click
import psycopg

from app import logs
from app.cli import archive, completion, executions, jobs, schedules, server, tasks, tokens, workers
from app.errors import MISCONFIGURED, PgtickError, SettingsError
from app.settings import Settings
from app.store.connections import NO_SCHEMA, lacks_schema
from app.store.pool import NoSchema, Unavailable

UNAVAILABLE = 69
"""Exit status when the database is away (EX_UNAVAILABLE of sysexits.h)."""
FORBIDDEN = 77
"""Exit status when the role of DATABASE_URL lacks a privilege (EX_NOPERM)."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pgtick")
@click.pass_context
def pgtick(context: click.Context) -> None:
    """A job scheduler on PostgreSQL alone."""
    context.obj = Settings.from_environment()
    logs.set_up(context.obj)


for command in [
    *server.commands,
    *jobs.commands,
    *schedules.commands,
    *tokens.commands,
    *archive.commands,
    *executions.commands,
    *tasks.commands,
    *workers.commands,
    *completion.commands,
]:
    pgtick.add_command(command)


def main() -> None:
    """Runs the command and turns errors into one line and an exit status."""
    try:
        "".join(sys.argv).encode()
    except UnicodeEncodeError:
        click.echo("an argument is not UTF-8", err=True)
        sys.exit(2)
    try:
        pgtick(standalone_mode=True, prog_name="pgtick")
    except SettingsError as error:
        click.echo("\n".join(error.faults), err=True)
        sys.exit(MISCONFIGURED)
    except NoSchema:
        click.echo(NO_SCHEMA, err=True)
        sys.exit(MISCONFIGURED)
    except (psycopg.OperationalError, Unavailable) as error:
        click.echo(f"the database is not available: {error}", err=True)
        sys.exit(UNAVAILABLE)
    except psycopg.errors.InsufficientPrivilege as error:
        click.echo(f"the role of DATABASE_URL may not: {error.diag.message_primary}", err=True)
        sys.exit(FORBIDDEN)
    except psycopg.Error as error:
        if not lacks_schema(error):
            raise
        click.echo(NO_SCHEMA, err=True)
        sys.exit(MISCONFIGURED)
    except PgtickError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
