"""What can be done by hand: each act asks first, says what it touches, and is then done by the API.

An act is offered where it makes sense; whether it is allowed is decided by what does it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.dashboard import backend, session
from app.dashboard.backend import Answer, Refused
from app.domain.execution import CANCELLED, FAILED, FINAL, IN_PROGRESS, SKIPPED
from app.store import verbs
from app.store.pool import Connection

Facts = dict[str, Any]


class Done(NamedTuple):
    """What an act came to: the name of the message to show, and the execution it made."""

    said: str
    execution_id: str | None = None


@dataclass(frozen=True)
class Act:
    verb: str
    label: str
    question: str
    touches: str
    do: Callable[[Facts, dict[str, str]], Done]
    danger: bool = False
    note: str | None = None
    """What a text that may come along is called."""


def of_execution(run: Facts) -> list[Act]:
    """What can be done about an execution."""
    if run["status"] not in FINAL:
        return [CANCEL_EXECUTION]
    return [RERUN] if run["status"] in (FAILED, CANCELLED, SKIPPED) else []


def of_job(job: Facts) -> list[Act]:
    """What can be done about a job."""
    if job["cancelled_at"]:
        return []
    acts = [RUN_NOW]
    if job["paused_at"]:
        acts.append(RESUME)
    elif job["schedule"]["type"] == "CRON":
        acts += [PAUSE, SKIP]
    if job["schedule"]["type"] == "CRON" or job["status"] in ("PENDING", "RETRYING", "IN_PROGRESS"):
        acts.append(CANCEL_JOB)
    return acts


def of_task(task: Facts) -> Act:
    """What can be done about a task."""
    return RESUME_TASK if task["paused_at"] else PAUSE_TASK


def named(acts: list[Act], verb: str) -> Act:
    """The act of that verb; refuses when it makes no sense (any more)."""
    for act in acts:
        if act.verb == verb:
            return act
    raise Refused(
        Answer(409, {"detail": "That cannot be done now; what you saw may have changed. Go back and look again."})
    )


def _cancel_execution(run: Facts, form: dict[str, str]) -> Done:
    now = backend.send("POST", f"/executions/{run['execution_id']}/cancel")
    return Done("stopping" if now["status"] == IN_PROGRESS else "cancelled")


def _rerun(run: Facts, form: dict[str, str]) -> Done:
    made = backend.send("POST", f"/executions/{run['execution_id']}/rerun")
    return Done("rerun", made["execution_id"])


def _run_now(job: Facts, form: dict[str, str]) -> Done:
    backend.send("POST", f"/jobs/{job['job_id']}/run")
    return Done("started")


def _pause(job: Facts, form: dict[str, str]) -> Done:
    note = form.get("note", "").strip() or None
    backend.send("POST", f"/jobs/{job['job_id']}/pause", json.dumps({"note": note}).encode())
    return Done("paused")


def _resume(job: Facts, form: dict[str, str]) -> Done:
    backend.send("POST", f"/jobs/{job['job_id']}/resume")
    return Done("resumed")


def _skip(job: Facts, form: dict[str, str]) -> Done:
    backend.send("POST", f"/jobs/{job['job_id']}/skip")
    return Done("skipped")


def _cancel_job(job: Facts, form: dict[str, str]) -> Done:
    backend.send("DELETE", f"/jobs/{job['job_id']}")
    return Done("cancelled")


def _pause_task(task: Facts, form: dict[str, str]) -> Done:
    note = form.get("note", "").strip() or None
    backend.send("PATCH", f"/tasks/{task['task_id']}", json.dumps({"paused": True, "note": note}).encode())
    return Done("task-paused")


def _resume_task(task: Facts, form: dict[str, str]) -> Done:
    backend.send("PATCH", f"/tasks/{task['task_id']}", json.dumps({"paused": False}).encode())
    return Done("task-resumed")


def _drain(worker: Facts, form: dict[str, str]) -> Done:
    def work(connection: Connection) -> None:
        with verbs.acting(connection, session.viewer().user_id or backend.services().settings.default_user):
            verbs.drain_worker(connection, str(worker["worker_id"]))

    try:
        backend.run(work)
    except verbs.Refused as error:
        raise Refused(Answer(error.status, {"detail": error.rule})) from None
    return Done("draining")


CANCEL_EXECUTION = Act(
    "cancel",
    "Cancel execution",
    "Cancel this execution?",
    "It does not start any more; if it runs, its worker is told to stop it. Other runs of its job are not touched.",
    _cancel_execution,
    danger=True,
)
RERUN = Act(
    "rerun",
    "Run again",
    "Run this execution again?",
    "A new execution of the same job, with the job's parameters, starts now. This one stays in the history as it is.",
    _rerun,
)
RUN_NOW = Act(
    "run-now",
    "Run now",
    "Run this job now?",
    "One more execution starts now. The schedule is not shifted.",
    _run_now,
)
PAUSE = Act(
    "pause",
    "Pause",
    "Pause this job?",
    "Runs that are pending ahead are taken back, and none is made until you resume it. What is due or runs goes on.",
    _pause,
    note="Why (others will see it)",
)
SKIP = Act(
    "skip",
    "Skip next run",
    "Leave out the next run of this job?",
    "That one run is recorded as SKIPPED; the ones after it stay as they are.",
    _skip,
)
RESUME = Act(
    "resume",
    "Resume",
    "Resume this job?",
    "It goes on with its next time after now. Runs that were missed stay missed.",
    _resume,
)
CANCEL_JOB = Act(
    "cancel",
    "Cancel job",
    "Cancel this job for good?",
    "What has not started is cancelled, retries too, and its schedule ends. What runs goes on. There is no way back.",
    _cancel_job,
    danger=True,
)
PAUSE_TASK = Act(
    "pause",
    "Pause",
    "Pause this task?",
    "None of its executions starts until you resume it, whatever job they are of: what is due meanwhile waits, and jobs"
    " can be posted. What runs goes on.",
    _pause_task,
    note="Why (others will see it)",
)
RESUME_TASK = Act(
    "resume",
    "Resume",
    "Resume this task?",
    "What has waited starts now, as fast as workers are free.",
    _resume_task,
)
DRAIN = Act(
    "drain",
    "Drain",
    "Drain this worker?",
    "It finishes what it runs, takes nothing more, and its process ends. Others take over what is due.",
    _drain,
    danger=True,
)
