"""Tokens of the API: add, list, revoke."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from app.cli.output import json_option, show, show_one
from app.cli.reading import NAME
from app.settings import Settings
from app.store import tokens as store
from app.store.connections import connect


@click.group()
def tokens() -> None:
    """Who may use the API, when PGTICK_TOKENS is on."""


@tokens.command()
@click.argument("user_id", type=NAME)
@click.option("--name", default="", help="What it is for.")
@click.option("--role", type=click.Choice(store.ROLES), help="The user's role from now on; a new user is a plain user.")
@click.option("--days", type=click.IntRange(1, 36500), help="How long it counts; for ever by default.")
@json_option
@click.pass_obj
def add(settings: Settings, user_id: str, name: str, role: str | None, days: int | None, as_json: bool) -> None:
    """Make a token for a user and print it, this once."""
    expires_at = datetime.now(UTC) + timedelta(days=days) if days else None
    with connect(settings.database_url) as connection:
        token_id, token = store.add(connection, user_id, name, role, expires_at)
    if as_json:
        show_one({"token_id": token_id, "user_id": user_id, "token": token, "expires_at": expires_at}, as_json)
    else:
        click.echo(token)


@tokens.command("list")
@click.option("--user", "user_id", type=NAME, help="Of this user only.")
@json_option
@click.pass_obj
def list_(settings: Settings, user_id: str | None, as_json: bool) -> None:
    """List tokens, without what would let anybody in."""
    with connect(settings.database_url) as connection:
        rows = store.every(connection, user_id)
    columns = ("token_id", "user_id", "role", "name", "created_at", "expires_at", "revoked_at")
    show(rows, columns, as_json)


@tokens.command()
@click.argument("token_id", type=int)
@click.pass_obj
def revoke(settings: Settings, token_id: int) -> None:
    """End a token; API processes that have just seen it take a second to notice."""
    with connect(settings.database_url) as connection:
        store.revoke(connection, token_id)


commands = [tokens]
