"""Workers: which processes there are, what each is doing, and taking one out of service."""

from __future__ import annotations

from flask import Response, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from app.dashboard import acts, backend, formats, session
from app.dashboard.backend import Answer, Refused
from app.dashboard.blueprint import blueprint, go, page
from app.store import monitoring

SHOWN = 100
ALIVE = ("RUNNING", "DRAINING", "SILENT")


@blueprint.get("/ui/workers")
def workers() -> Response:
    only = session.viewer().only
    rows, running, queues = backend.run(
        lambda c: (monitoring.workers(c), monitoring.running(c, only, SHOWN), monitoring.queues(c))
    )
    alive = [row for row in rows if row["state"] in ALIVE]
    over = [row for row in rows if row["state"] not in ALIVE]
    return page("workers.html", alive=alive, over=over, running=running, queues=queues, shown=SHOWN)


@blueprint.route("/ui/workers/<int:worker_id>/drain", methods=["GET", "POST"])
def drain(worker_id: int) -> AnyResponse:
    if not session.viewer().operates:
        raise Refused(Answer(403, {"detail": "Draining a worker takes the role operator or admin."}))
    found = next((row for row in backend.run(monitoring.workers) if row["worker_id"] == worker_id), None)
    if found is None:
        raise Refused(Answer(404, {"detail": "There is no such worker."}))
    if request.method == "POST":
        return go("workers", said=acts.DRAIN.do(found, {}).said)
    facts = [
        ("Worker", found["name"]),
        ("State", found["state"]),
        ("Runs now", f"{found['running']} of {found['capacity']}"),
        ("Up for", formats.span(found["up_for"])),
    ]
    return page("confirm.html", act=acts.DRAIN, facts=facts, back=url_for("dashboard.workers"))
