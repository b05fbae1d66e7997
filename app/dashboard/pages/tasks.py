"""Tasks: what jobs can name, who serves it, and how it went in the last hour."""

from __future__ import annotations

from flask import Response

from app.dashboard import backend
from app.dashboard.blueprint import blueprint, page
from app.store import monitoring


@blueprint.get("/ui/tasks")
def tasks() -> Response:
    rows = backend.get("/tasks")["tasks"]
    keys = {name: key for key, name in backend.services().tasks.names().items()}
    hour = backend.run(monitoring.tasks_last_hour)
    return page("tasks.html", rows=[(row, hour.get(keys.get(row["task_id"], -1))) for row in rows])
