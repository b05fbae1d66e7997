"""/tasks: what jobs can name."""

from __future__ import annotations

from flask import Blueprint, Response

from app.api import responses
from app.api.services import current

blueprint = Blueprint("tasks", __name__)


@blueprint.get("/tasks")
def index() -> Response:
    rows = current().tasks.all()
    for row in rows:
        row["created_at"] = responses.rfc3339(row["created_at"])
        row["updated_at"] = responses.rfc3339(row["updated_at"])
    return responses.answer({"tasks": rows})
