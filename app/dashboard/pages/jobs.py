"""Jobs: the list, and one with its schedule in words, its next runs and what it did."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import Response, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from app.clock import clock
from app.dashboard import acts, backend, formats, listings, plots
from app.dashboard.blueprint import blueprint, go, page
from app.domain.execution import STATUSES
from app.domain.job import CRON
from app.schedule.cron import parse
from app.schedule.errors import ScheduleError
from app.schedule.policies import Policies
from app.store import monitoring

LIMIT = 50
RUNS = 60
COMING = 10


@blueprint.get("/ui/jobs")
def jobs() -> Response:
    wanted = listings.query("user_id", "task_id", "status", "schedule_type", times=True)
    found = wanted.read("/jobs", LIMIT)
    return page(
        "jobs.html",
        rows=found.get("jobs", []),
        next=listings.following(found.get("next_cursor")),
        wanted=wanted,
        statuses=STATUSES,
        tasks=listings.task_names(),
        in_words=in_words,
    )


@blueprint.get("/ui/jobs/<job_id>")
def job(job_id: str) -> Response:
    found = backend.get(f"/jobs/{job_id}")
    runs = backend.get(f"/jobs/{job_id}/executions", limit=RUNS)["executions"]
    coming = backend.get(f"/jobs/{job_id}/next", n=COMING)
    # By the execution's own id where there is one: its time names the partition to look in.
    known = found["execution"]["execution_id"] if found["schedule"]["type"] != CRON and found["execution"] else job_id
    why = None if found["cancelled_at"] else backend.run(lambda c: monitoring.explain(c, known))
    return page(
        "job.html",
        job=found,
        runs=runs,
        why=why,
        words=coming["description"] if found["schedule"]["type"] == CRON else in_words(found["schedule"]),
        coming=coming["runs"],
        policies=chosen_policies(found),
        editable=not found["cancelled_at"] and (found["schedule"]["type"] == CRON or found["status"] == "PENDING"),
        timeline=timeline(runs),
        acts=acts.of_job(found),
    )


def chosen_policies(job: dict[str, Any]) -> dict[str, Any]:
    """The policies of a job that are not the defaults anyway."""
    defaults = Policies.defaults(recurring=job["schedule"]["type"] == CRON).full_dict()
    return {name: value for name, value in (job["policies"] or {}).items() if value != defaults.get(name)}


def in_words(schedule: dict[str, Any]) -> str:
    """A schedule as people say it: of the API's JSON."""
    if schedule["type"] != CRON:
        return "once, at once" if schedule["type"] == "NOW" else "once"
    try:
        return parse(schedule["expression"], schedule["timezone"]).describe()
    except ScheduleError as error:  # put in by hand
        return error.rule


def timeline(runs: list[dict[str, Any]]) -> plots.Timeline | None:
    """The runs that have started, as points."""
    points = []
    for run in runs:
        if run["started_at"] is None:
            continue
        started = datetime.fromisoformat(run["started_at"])
        ended = datetime.fromisoformat(run["finished_at"]) if run["finished_at"] else clock.now_utc()
        took = max((ended - started).total_seconds(), 0.0)
        text = f"{run['status']}, took {formats.span(took)}, {formats.span(run['lateness_s'])} after its time"
        address = url_for("dashboard.execution", execution_id=run["execution_id"])
        points.append((started, took, run["status"], text, address))
    return plots.timeline(points)


@blueprint.route("/ui/jobs/<job_id>/<any('run-now', pause, resume, skip, cancel):verb>", methods=["GET", "POST"])
def act_on_job(job_id: str, verb: str) -> AnyResponse:
    found = backend.get(f"/jobs/{job_id}")
    act = acts.named(acts.of_job(found), verb)
    if request.method == "POST":
        return go("job", job_id=job_id, said=act.do(found, dict(request.form)).said)
    back = url_for("dashboard.job", job_id=job_id)
    facts = [
        ("Job", job_id),
        ("Task", found["task_id"]),
        ("User", found["user_id"]),
        ("Schedule", in_words(found["schedule"])),
        ("Next run", formats.when(found["next_runs"][0]) if found["next_runs"] else "none"),
        ("Last or next execution", (found["status"] or "none").lower().replace("_", " ")),
        ("Parameters", formats.brief(found["parameters"])),
    ]
    return page("confirm.html", act=act, facts=facts, back=back)


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
