"""Logging in with a token of the API, and out."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import make_response, redirect, request
from werkzeug.wrappers import Response as AnyResponse

from app.dashboard import backend, session
from app.dashboard.blueprint import blueprint, go, page


@blueprint.route("/ui/login", methods=["GET", "POST"])
def log_in() -> AnyResponse:
    if request.method == "GET":
        return page("login.html", next=request.args.get("next", "/"), refused=False)
    given = request.form.get("token", "").strip()
    if backend.viewer_of(given) is None:
        return page("login.html", 401, next=request.form.get("next", "/"), refused=True)
    response = make_response(redirect(_own_page(request.form.get("next", "/")), 303))
    session.log_in(response, given)
    return response


@blueprint.post("/ui/logout")
def log_out() -> AnyResponse:
    response = make_response(go("log_in"))
    session.log_out(response)
    return response


def _own_page(address: str) -> str:
    """An address of this dashboard; the first page for any other."""
    parts = urlsplit(address)
    own = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.netloc and not parts.scheme
    return address if own else "/"
