"""Who asks, and what that allows: bearer tokens, roles, and how often one may ask.

Off by default, for a server on loopback: then everybody is everybody. A request of a user's token sees and touches that
user's jobs alone, whatever the route: addresses with somebody else's job in them are looked up here, before any view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flask import Flask, g, request

from app.api import problems
from app.api.problems import Problem
from app.api.rates import Rates
from app.api.services import current
from app.domain.execution import ExecutionId
from app.domain.ids import parse_uuid
from app.errors import SettingsError
from app.settings import Settings
from app.store import jobs, operations, verbs
from app.store.pool import Connection
from app.store.tokens import ADMIN, OPERATOR, ROLES, Identity

T = TypeVar("T")

OPEN = frozenset({"health.show", "openapi.show", "docs.show_page", "docs.style"})
"""Endpoints that need no token."""
ROLE_NEEDED = {
    "metrics.show": OPERATOR,
    "schedules.forecast": OPERATOR,
    "tasks.edit": OPERATOR,
    "tasks.put": ADMIN,
}
"""Endpoints that a user's token does not open."""
OWN_LOGIN = frozenset({"dashboard"})
"""Blueprints that see to their visitors themselves."""


def install(app: Flask, settings: Settings) -> None:
    """Has every request checked. Raises SettingsError for an API that would be open to a network."""
    if faults := settings.api_faults():
        raise SettingsError(faults)
    rates = Rates(settings.rate_limit)

    @app.before_request
    def check() -> None:
        if request.blueprint in OWN_LOGIN:
            return
        g.identity = _identify(settings)
        if settings.rate_limit and request.endpoint not in OPEN:
            pause = rates.pause_s(str(g.identity.token_id if g.identity else request.remote_addr))
            if pause > 0:
                raise Problem(429, f"more than {settings.rate_limit:g} requests a second; wait", retry_after_s=pause)
        _authorise()


def identity() -> Identity | None:
    """Whom this request comes from; None when nobody is asked."""
    found: Identity | None = g.get("identity")
    return found


def only() -> str | None:
    """The one user whose jobs this request may see; None: everybody's."""
    who = identity()
    return None if who is None else who.only


def acting_user() -> str:
    """Whose the jobs are that this request makes without saying whose."""
    who = identity()
    return current().settings.default_user if who is None else who.user_id


def act(work: Callable[[Connection], T]) -> T:
    """What `work` does to the database, in one transaction and in the name of whom this request comes from."""
    user_id = acting_user()

    def run(connection: Connection) -> T:
        with verbs.acting(connection, user_id):
            return work(connection)

    return current().pool.run(run)


def user_to_list(wanted: str | None) -> str | None:
    """The user to list: the one asked for, where this request may see their jobs."""
    own = only()
    if own is None or wanted is None:
        return wanted or own
    if wanted != own:
        raise problems.not_found("user")
    return own


def refuse_other(user_id: str | None) -> None:
    """Nobody makes jobs in the name of another, unless their role lets them."""
    own = only()
    if own is not None and user_id is not None and user_id != own:
        raise Problem(403, f"this token is of user {own} and makes jobs of no other")


def _identify(settings: Settings) -> Identity | None:
    if not settings.tokens or request.endpoint in OPEN:
        return None
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    found = current().tokens.identify(token.strip()) if scheme.lower() == "bearer" else None
    if found is None:
        raise Problem(401, "a valid token is needed: Authorization: Bearer pgtick_…")
    return found


def _authorise() -> None:
    who = identity()
    if who is None:
        return
    needed = ROLE_NEEDED.get(request.endpoint or "")
    if needed is not None and ROLES.index(who.role) < ROLES.index(needed):
        raise Problem(403, f"this needs a token of the role {needed}, and the role of {who.user_id} is {who.role}")
    if who.only is not None and request.view_args:
        _refuse_others_jobs(who.only, request.view_args)


def _refuse_others_jobs(user_id: str, names: dict[str, str]) -> None:
    if "operation_id" in names:
        known = operations.parse_id(names["operation_id"])
        if known is None or current().pool.run(lambda c: operations.owner(c, known)) != user_id:
            raise problems.not_found("operation")
        return
    job_id, what = parse_uuid(names.get("job_id", "")), "job"
    if "execution_id" in names:
        execution = ExecutionId.parse(names["execution_id"])
        job_id, what = execution and execution.job_id, "execution"
    elif "job_id" not in names:
        return
    if job_id is None or current().pool.run(lambda c: jobs.owner(c, job_id)) != user_id:
        raise problems.not_found(what)
