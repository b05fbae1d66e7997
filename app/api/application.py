"""The Flask application: settings in, blueprints on, every error a problem."""

from __future__ import annotations

from flask import Flask, request
from werkzeug.routing import BaseConverter

from app.api import (
    auth,
    executions,
    filters,
    health,
    jobs,
    metrics,
    openapi,
    operations,
    problems,
    schedules,
    tasks,
    verbs,
)
from app.api.services import EXTENSION, Services
from app.settings import Settings


class _Id(BaseConverter):
    """An id in an address: none is named like what else is there, which has methods of its own."""

    regex = "(?!batch$)[^/]+"
    part_isolating = True


def _refuse_unread() -> None:
    """A parameter that nobody reads may be the one that mattered, such as a misspelt `dry_run`."""
    if request.query_string and request.method not in ("GET", "HEAD") and request.endpoint in openapi.ENDPOINTS:
        filters.refuse_unknown(*openapi.ENDPOINTS[request.endpoint].query)


def create_app(settings: Settings | None = None) -> Flask:
    """Makes the application without touching the database, so that it can be made before a server forks."""
    settings = settings or Settings.from_environment()
    app = Flask("pgtick", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.url_map.strict_slashes = False
    app.url_map.converters["default"] = _Id
    app.extensions[EXTENSION] = Services.make(settings)
    problems.install(app)
    auth.install(app, settings)
    app.before_request(_refuse_unread)
    for module in (jobs, verbs, schedules, executions, operations, tasks, health, metrics):
        app.register_blueprint(module.blueprint)
    app.register_blueprint(openapi.blueprint)
    app.register_blueprint(openapi.pages)
    return app
