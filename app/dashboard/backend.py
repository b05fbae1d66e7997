"""What pages work with: the REST API of this process, asked as a program would, and the database for views.

Jobs and executions are read and changed through the API, so that a page allows, refuses and explains exactly what a
program would be allowed, refused and told. What the API has no route for (statistics, workers, partitions) is read with
`app.store.monitoring`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from flask import current_app, request
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Response

from app.dashboard import session
from app.dashboard.session import Viewer
from app.settings import Settings
from app.store.pool import Connection, Pool
from app.store.tasks import Tasks
from app.store.tokens import Tokens

T = TypeVar("T")
_EXTENSION = "pgtick"


class Services(Protocol):
    """What the application keeps, one of each a process."""

    @property
    def settings(self) -> Settings: ...
    @property
    def pool(self) -> Pool: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def tokens(self) -> Tokens: ...


class Answer(NamedTuple):
    """What the API said. `body` is its JSON."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        return self.status < 400


class Refused(Exception):
    """The API refused something; `status` and the sentence it gave, and its faults when there are several."""

    def __init__(self, answer: Answer) -> None:
        problem = answer.body if isinstance(answer.body, dict) else {}
        self.status = answer.status
        self.detail: str = problem.get("detail") or "the API gave no reason"
        self.errors: list[dict[str, Any]] = problem.get("errors") or []
        super().__init__(self.detail)


def services() -> Services:
    return cast(Services, current_app.extensions[_EXTENSION])


def run(work: Callable[[Connection], T]) -> T:
    """What `work` reads from the database."""
    return services().pool.run(work)


def ask(
    method: str, path: str, query: Mapping[str, Any] | None = None, body: bytes | None = None, token: str | None = None
) -> Answer:
    """The API's answer to a request of the person who looks at this page, whatever it is."""
    builder = EnvironBuilder(
        method=method,
        path=path,
        query_string={name: value for name, value in (query or {}).items() if value not in (None, "", [])},
        data=body,
        content_type=None if body is None else "application/json",
        headers=Headers(session.authorization()),
        environ_overrides={"REMOTE_ADDR": request.remote_addr or ""},
    )
    try:
        response = Response.from_app(current_app.wsgi_app, builder.get_environ(), buffered=True)
        data = response.get_data()
    finally:
        builder.close()
    return Answer(response.status_code, json.loads(data) if data else None)


def get(path: str, **query: Any) -> Any:
    """The JSON at an address of the API; raises Refused when it refuses."""
    return _accepted(ask("GET", path, query))


def send(method: str, path: str, body: bytes | None = None, **query: Any) -> Any:
    """Has the API do something; raises Refused when it refuses."""
    return _accepted(ask(method, path, query, body))


def _accepted(answer: Answer) -> Any:
    if not answer.ok:
        raise Refused(answer)
    return answer.body


def viewer_of(token: str | None) -> Viewer | None:
    """Who holds a token; None when nobody does."""
    who = services().tokens.identify(token) if token else None
    return None if who is None else Viewer(who.user_id, who.role)
