"""The blueprint that all pages hang on, and what every one of them gets: headers, errors in words, checks of forms."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from flask import Blueprint, Response, g, make_response, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as AnyResponse

from app.clock import clock
from app.dashboard import backend, formats, session
from app.dashboard.backend import Refused
from app.events import emit
from app.store.connections import is_retryable
from app.store.pool import Unavailable

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_OPEN = ("dashboard.log_in", "dashboard.log_out")
TITLES = {
    400: "That cannot be shown",
    401: "Log in",
    403: "Not allowed",
    404: "Not found",
    409: "It changed meanwhile",
    422: "Not accepted",
    503: "The database does not answer",
}

blueprint = Blueprint(
    "dashboard", __name__, template_folder="templates", static_folder="static", static_url_path="/ui/static"
)
for _name, _filter in formats.FILTERS.items():
    blueprint.add_app_template_filter(_filter, _name)


@blueprint.before_request
def _check() -> AnyResponse | None:
    if request.endpoint == "dashboard.static":
        return None
    if request.method == "POST":
        if session.forged():
            return failure(
                403, "The form is too old, or came from another site. Go back, reload the page, and try again."
            )
        if request.endpoint not in _OPEN and read_only():
            return failure(403, "This dashboard is set to read only (PGTICK_DASHBOARD_READ_ONLY).")
    if backend.services().settings.tokens:
        g.viewer = backend.viewer_of(session.token())
        if g.viewer is None and request.endpoint not in _OPEN:
            return to_login()
    return None


@blueprint.after_request
def _finish(response: Response) -> Response:
    headers = response.headers
    headers["Content-Security-Policy"] = POLICY
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "same-origin"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    if request.endpoint == "dashboard.static":
        headers["Cache-Control"] = "public, max-age=31536000, immutable" if "v" in request.args else "no-cache"
    else:
        headers["Cache-Control"] = "no-store"
        session.remember(response)
    return response


@blueprint.context_processor
def _shared() -> dict[str, Any]:
    return {
        "asset": asset,
        "csrf_token": session.csrf_token,
        "now": clock.now_utc(),
        "read_only": read_only(),
        "said": MESSAGES.get(request.args.get("said", "")),
        "logged_out": "viewer" in g and g.viewer is None,
        "viewer": session.viewer(),
        "zone": session.viewer_zone().key,
    }


MESSAGES = {
    "created": "The job is made.",
    "paused": "The job is paused. What runs goes on; nothing new starts until it is resumed.",
    "resumed": "The job goes on with its next time.",
    "task-paused": "The task is paused. What runs goes on; nothing new starts until it is resumed.",
    "task-resumed": "The task goes on with what has waited.",
    "started": "Another run is on its way, besides the schedule.",
    "cancelled": "Cancelled.",
    "stopping": "It is being stopped; its worker has been told.",
    "rerun": "This is the new execution. The one before it stays as it is.",
    "edited": "The job is changed.",
    "same": "Nothing was different, so nothing was changed.",
    "draining": "The worker finishes what it runs, takes nothing more, and ends.",
    "skipped": "That run is left out.",
}


def page(template: str, status: int = 200, /, **values: Any) -> Response:
    return make_response(render_template(template, **values), status)


def go(endpoint: str, **values: Any) -> AnyResponse:
    """To another page after a form was sent."""
    return redirect(url_for(f"dashboard.{endpoint}", **values), 303)


def to_login() -> AnyResponse:
    """To the login, and from there back to this page."""
    return go("log_in", next=request.full_path.rstrip("?") if request.method == "GET" else "/")


def read_only() -> bool:
    return backend.services().settings.dashboard_read_only


def failure(status: int, detail: str, errors: list[dict[str, Any]] | None = None) -> Response:
    """An error in words."""
    title = TITLES.get(status, "That went wrong")
    return page("error.html", status, code=status, title=title, detail=detail, errors=errors or [])


@blueprint.errorhandler(Exception)
def _explain(error: Exception) -> AnyResponse:
    if isinstance(error, Refused):
        if error.status == 401:
            return to_login()
        return failure(error.status, error.detail, error.errors)
    if isinstance(error, HTTPException):
        if error.code is not None and error.code < 400:
            return error.get_response()
        return failure(error.code or 500, error.description or "")
    if isinstance(error, Unavailable) or (isinstance(error, psycopg.Error) and is_retryable(error)):
        return failure(503, "Jobs go on when it is back. This page tries again by itself.")
    emit("request_failed", error=error, method=request.method, path=request.path)
    return failure(500, "An error of this server; its log has the details.")


@blueprint.get("/ui/<path:rest>")
def _nothing(rest: str) -> Response:
    return failure(404, "There is no page at this address.")


def asset(name: str) -> str:
    """The address of a static file; it changes with the file, so browsers may keep it for good."""
    return url_for("dashboard.static", filename=name, v=_digest(name))


@cache
def _digest(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
