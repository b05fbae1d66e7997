"""Executions: the list, and one with its attempts and what may be done about it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from flask import Response, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from app.dashboard import acts, backend, formats, listings, session
from app.dashboard.blueprint import blueprint, go, page
from app.domain.execution import COMPLETED, FINAL, PENDING, STATUSES, ExecutionId
from app.domain.ids import parse_uuid
from app.store import monitoring

LIMIT = 50
ERROR_SPAN = timedelta(days=1)


@blueprint.get("/ui/executions")
def executions() -> Response:
    wanted = listings.query("user_id", "task_id", "status", "error", times=True)
    if "error" in wanted.query and "status" not in wanted.query:
        # What completed has none: history is gone through by the index of the rest.
        wanted.query["status"] = ",".join(status for status in STATUSES if status not in (PENDING, COMPLETED))
    bounded = "error" in wanted.query and "start_time" not in wanted.query
    if bounded:
        # No index knows texts: without a bound a rare one is looked for in all of history.
        wanted.query["start_time"] = listings.at(-ERROR_SPAN)
    if "coming" not in request.args and "end_time" not in wanted.query and not _only_coming(wanted.query):
        # Newest first would begin with next month.
        wanted.query["end_time"] = listings.soon()
    found = wanted.read("/executions", LIMIT)
    return page(
        "executions.html",
        rows=found.get("executions", []),
        next=listings.following(found.get("next_cursor")),
        wanted=wanted,
        bounded=bounded,
        statuses=STATUSES,
        tasks=listings.task_names(),
    )


def _only_coming(query: dict[str, Any]) -> bool:
    return query.get("status") in ("PENDING", "RETRYING")


@blueprint.get("/ui/executions/<execution_id>")
def execution(execution_id: str) -> Response:
    found = backend.get(f"/executions/{execution_id}")
    job = backend.ask("GET", f"/jobs/{found['job_id']}")
    why, worker = backend.run(
        lambda c: (
            None if found["status"] in FINAL else monitoring.explain(c, found["execution_id"]),
            monitoring.worker_names(c, [found["worker_id"]]) if found["worker_id"] else {},
        )
    )
    return page(
        "execution.html",
        run=found,
        job=job.body if job.ok else None,
        why=why,
        worker=worker.get(found["worker_id"]),
        steps=steps(found),
        final=found["status"] in FINAL,
        origin=ExecutionId.parse(str(found["origin"] or "").removeprefix("retry of ")),
        acts=acts.of_execution(found),
    )


def steps(run: dict[str, Any]) -> list[dict[str, Any]]:
    """What happened to an execution, in order: each has a mood, a title, a time, perhaps a text."""
    told: list[dict[str, Any]] = [{"mood": "plain", "title": "Scheduled", "at": run["scheduled_at"], "text": None}]
    for n, error in enumerate(run["errors"], 1):
        facts = error if isinstance(error, dict) else {"error": str(error)}
        attempt = facts.get("attempt") or n
        told.append(
            {
                "mood": "bad",
                "title": f"Attempt {attempt} failed",
                "at": _time(facts.get("at")),
                "text": facts.get("error"),
                "trace": facts.get("trace"),
                "started_at": _time(facts.get("started_at")),
            }
        )
    status, late = run["status"], run["lateness_s"]
    if status == "IN_PROGRESS":
        told.append({"mood": "run", "title": f"Attempt {run['attempt']} runs", "at": run["started_at"], "text": None})
    elif status in ("PENDING", "RETRYING"):
        told.append(
            {"mood": "plain", "title": f"Attempt {run['attempt'] + 1} is due", "at": run["due_at"], "text": None}
        )
    elif status == "COMPLETED":
        after = f"started {formats.span(late)} after its time" if late is not None else None
        told.append(
            {"mood": "plain", "title": f"Attempt {run['attempt']} started", "at": run["started_at"], "text": after}
        )
        told.append({"mood": "good", "title": "Completed", "at": run["finished_at"], "text": None})
    else:
        title = {"FAILED": "Failed for good", "CANCELLED": "Cancelled", "SKIPPED": "Left out"}[status]
        text = None if status == "FAILED" and run["errors"] else run["error"]
        told.append(
            {"mood": "bad" if status == "FAILED" else "plain", "title": title, "at": run["finished_at"], "text": text}
        )
    return told


def _time(value: Any) -> str | None:
    """A time in an error that a worker of any version wrote."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return None if at is None or at.tzinfo is None else at.isoformat()


@blueprint.route("/ui/executions/<execution_id>/<any(cancel, rerun):verb>", methods=["GET", "POST"])
def act_on_execution(execution_id: str, verb: str) -> AnyResponse:
    found = backend.get(f"/executions/{execution_id}")
    act = acts.named(acts.of_execution(found), verb)
    if request.method == "POST":
        done = act.do(found, dict(request.form))
        return go("execution", execution_id=done.execution_id or execution_id, said=done.said)
    back = url_for("dashboard.execution", execution_id=execution_id)
    facts = [
        ("Execution", execution_id),
        ("Task", found["task_id"]),
        ("User", found["user_id"]),
        ("Status", found["status"]),
        ("Scheduled", formats.when(found["scheduled_at"], exact=True)),
    ]
    return page("confirm.html", act=act, facts=facts, back=back)


@blueprint.get("/ui/find")
def find() -> AnyResponse:
    """Straight to a job or an execution by its id."""
    text = request.args.get("id", "").strip()
    if ExecutionId.parse(text):
        return go("execution", execution_id=text)
    if known := parse_uuid(text):
        return go("job", job_id=known)
    if text in listings.task_names():
        return go("executions", task_id=text)
    return page("find.html", 404, text=text, viewer_only=session.viewer().only)
