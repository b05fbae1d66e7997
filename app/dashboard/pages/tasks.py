"""Tasks: what jobs can name, who serves it, how it went in the last hour, and pausing it."""

from __future__ import annotations

from flask import Response, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from app.dashboard import acts, backend, formats, session
from app.dashboard.backend import Answer, Refused
from app.dashboard.blueprint import blueprint, go, page
from app.store import monitoring


@blueprint.get("/ui/tasks")
def tasks() -> Response:
    rows = backend.get("/tasks")["tasks"]
    keys = {name: key for key, name in backend.services().tasks.names().items()}
    hour = backend.run(monitoring.tasks_last_hour)
    return page("tasks.html", rows=[(row, hour.get(keys.get(row["task_id"], -1)), acts.of_task(row)) for row in rows])


@blueprint.route("/ui/tasks/<path:task_id>/<any(pause, resume):verb>", methods=["GET", "POST"])
def act_on_task(task_id: str, verb: str) -> AnyResponse:
    if not session.viewer().operates:
        raise Refused(Answer(403, {"detail": "Pausing a task takes the role operator or admin."}))
    found = backend.get(f"/tasks/{task_id}")
    act = acts.named([acts.of_task(found)], verb)
    if request.method == "POST":
        return go("tasks", said=act.do(found, dict(request.form)).said)
    facts = [("Task", task_id), ("Queue", found["queue"])]
    if found["paused_at"]:
        facts += [("Paused", formats.when(found["paused_at"])), ("Why", found["paused_note"] or "nobody said")]
    return page("confirm.html", act=act, facts=facts, back=url_for("dashboard.tasks"))
