"""Errors as the API tells them: RFC 9457 problem details, whatever went wrong and wherever."""

from __future__ import annotations

import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
import psycopg
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from app.errors import UnknownTask
from app.events import emit
from app.store.connections import is_retryable
from app.store.idempotency import KeyConflict
from app.store.pool import NoSchema, Unavailable
from app.store.verbs import Refused

MIMETYPE = "application/problem+json"
RETRY_AFTER_S = 2
MAX_FAULTS = 100
"""So many things that are wrong are told of one request; more do not help anybody."""


class Fault(NamedTuple):
    """One thing that is wrong with a body: the place (a JSON pointer, RFC 6901; empty: all of it) and the rule."""

    pointer: str
    detail: str


class Problem(Exception):
    """An answer that is an error. `extra` are further members of the problem object."""

    def __init__(self, status: int, detail: str, **extra: Any) -> None:
        self.status = status
        self.detail = detail
        self.extra = extra
        super().__init__(detail)


def invalid(faults: Sequence[Fault | dict[str, Any]]) -> Problem:
    """A body that breaks rules: all of them, as far as they help."""
    errors = [fault._asdict() if isinstance(fault, Fault) else fault for fault in faults[:MAX_FAULTS]]
    first = "" if len(faults) <= MAX_FAULTS else f" for the first {MAX_FAULTS}"
    detail = errors[0]["detail"] if len(errors) == 1 else f"{len(faults)} things are wrong; see errors{first}"
    return Problem(422, detail, errors=errors)


def bad_parameter(name: str, detail: str) -> Problem:
    """A query parameter that says nothing usable."""
    return Problem(400, f"{name}: {detail}", parameter=name)


def not_found(what: str) -> Problem:
    return Problem(404, f"there is no such {what}")


def response(status: int, detail: str, **extra: Any) -> Response:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **extra}
    return Response(msgspec.json.encode(body) + b"\n", status, mimetype=MIMETYPE)


def install(app: Flask) -> None:
    """Has every error of the application answered as a problem."""
    app.register_error_handler(Exception, _answer)


def _answer(error: Exception) -> Response:
    if isinstance(error, Problem):
        answer = response(error.status, error.detail, **error.extra)
        if error.status == 401:
            answer.headers["WWW-Authenticate"] = 'Bearer realm="pgtick"'
        elif error.status == 429:
            answer.headers["Retry-After"] = str(math.ceil(error.extra["retry_after_s"]))
        return answer
    if isinstance(error, HTTPException):
        return _http(error)
    if isinstance(error, KeyConflict):
        return response(409, str(error))
    if isinstance(error, Refused):
        faults = {"errors": [Fault(f"/{error.field}", error.rule)._asdict()]} if error.status == 422 else {}
        return response(error.status, error.rule, **faults)
    if isinstance(error, UnknownTask):
        return response(422, str(error), errors=[{"pointer": "/task_id", "detail": str(error)}])
    if isinstance(error, Unavailable) or (isinstance(error, psycopg.Error) and is_retryable(error)):
        passing = "the database is not available at the moment; try again"
        answer = response(503, str(error) if isinstance(error, NoSchema) else passing)
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
        return answer
    emit("request_failed", error=error, method=request.method, path=request.path)
    return response(500, "an error of this server; its log has the details")


def _http(error: HTTPException) -> Response:
    status = error.code or 500
    if status < 400:  # redirects are answers of their own
        return Response(error.get_body(), status, error.get_headers())
    answer = response(status, _DETAILS.get(status) or error.description or HTTPStatus(status).phrase)
    # Allow of 405, WWW-Authenticate of 401 and the like.
    for name, value in error.get_headers():
        if name not in ("Content-Type", "Content-Length"):
            answer.headers[name] = value
    return answer


_DETAILS = {
    404: "there is nothing at this address",
    405: "this address does not take this method; see Allow",
    413: "the body is larger than this server takes",
}
