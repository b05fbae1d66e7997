"""Jobs: the list, and one with its schedule in words, its next runs and what it did."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from flask import Response, request, url_for
from markupsafe import Markup
from werkzeug.wrappers import Response as AnyResponse

from app.clock import clock
from app.dashboard import acts, backend, formats, listings, plots
from app.dashboard.blueprint import blueprint, go, page
from app.domain.execution import FINAL, STATUSES
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
        rows=[(job, standing(job, matched="status" in wanted.query)) for job in found.get("jobs", [])],
        next=listings.following(found.get("next_cursor")),
        wanted=wanted,
        statuses=STATUSES,
        tasks=listings.task_names(),
        in_words=in_words,
    )


@blueprint.get("/ui/jobs/<job_id>")
def job(job_id: str) -> Response:
    found = backend.get(f"/jobs/{job_id}")
    # What is still to come of a recurring job is told by its next runs.
    due = {"end_time": listings.soon()} if found["schedule"]["type"] == CRON else {}
    runs = backend.get(f"/jobs/{job_id}/executions", limit=RUNS, **due)["executions"]
    coming = backend.get(f"/jobs/{job_id}/next", n=COMING)
    # By the execution's own id where there is one: its time names the partition to look in.
    known = found["execution"]["execution_id"] if found["schedule"]["type"] != CRON and found["execution"] else job_id
    why = None if found["cancelled_at"] else backend.run(lambda c: monitoring.explain(c, known))
    return page(
        "job.html",
        job=found,
        standing=standing(found),
        runs=runs,
        why=why,
        words=coming["description"] if found["schedule"]["type"] == CRON else in_words(found["schedule"]),
        coming=coming["runs"],
        policies=chosen_policies(found),
        editable=not found["cancelled_at"] and (found["schedule"]["type"] == CRON or found["status"] == "PENDING"),
        timeline=timeline(runs),
        acts=acts.of_job(found),
    )


class Standing(NamedTuple):
    """How a job stands in a word, when its last run was planned, and when the next one is."""

    status: str | None
    last_at: str | None
    next_at: str | None


def standing(job: dict[str, Any], *, matched: bool = False) -> Standing:
    """A recurring job stands as its last run ended: its newest execution is nearly always one to come.

    `matched`: it was looked for by a status, so it is shown with the execution that has it.
    """
    status, at = job["status"], job.get("scheduled_at")
    if "execution" in job:
        at = job["execution"] and job["execution"]["scheduled_at"]
    waits = status in ("PENDING", "RETRYING")
    next_at = job["next_run_at"] if "next_run_at" in job else next(iter(job["next_runs"]), None)
    if job["cancelled_at"] or job["paused_at"]:
        next_at = None
    elif next_at is None and waits:
        next_at = at
    if matched and not waits:
        return Standing(status, at, next_at)
    started = None if waits or status in FINAL else at
    if job["cancelled_at"]:
        word = "CANCELLED"
    elif job["paused_at"] or job["problem"]:
        word = "PAUSED" if job["paused_at"] else "BROKEN"
    else:
        word = job["last_status"] if job["schedule"]["type"] == CRON and waits and job["last_status"] else status
    return Standing(word, started or job["last_run_at"], next_at)


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
        ("Last run", Markup("{} {}").format(*_last(found)) if found["last_status"] else "none has ended"),
        ("Parameters", formats.brief(found["parameters"])),
    ]
    return page("confirm.html", act=act, facts=facts, back=back)


def _last(job: dict[str, Any]) -> tuple[str, Markup]:
    return job["last_status"].lower(), formats.when(job["last_run_at"])
