"""What answers look like, as `/openapi.json` tells it. Every answer that a test of the API sees is held to these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Status = Literal["PENDING", "IN_PROGRESS", "RETRYING", "COMPLETED", "FAILED", "CANCELLED", "SKIPPED"]
LastStatus = Annotated[
    Literal["COMPLETED", "FAILED", "CANCELLED"] | None,
    Meta(
        description="how the newest run that has ended ended, whatever the filters; null: none has, of those scheduled"
        " within 36 hours or at the last planned time"
    ),
]
LastRunAt = Annotated[datetime | None, Meta(description="when that run was scheduled")]
Count = Annotated[int, Meta(ge=0)]
JobId = Annotated[str, Meta(description="UUIDv7: sorts by creation", examples=["01a22b71-1d75-740f-a9c2-cdb05c1549c9"])]
ExecutionId = Annotated[str, Meta(description="`<scheduled_at in µs since the epoch>-<job_id>`")]


class Schedule(Struct):
    """When a job runs, as it was understood."""

    type: Literal["NOW", "DATE", "CRON"]
    expression: str | None
    timezone: str
    run_at: datetime | None = None


class CreatedJob(Struct):
    """A job that was just made, or with `dry_run` would have been: then it has no id."""

    job_id: JobId | None
    user_id: str
    task_id: str
    status: Status
    schedule: Schedule
    next_runs: list[datetime]
    parameters: dict[str, Any]
    max_retries: int | None
    timeout_s: float | None
    policies: dict[str, Any]
    created_at: datetime
    warnings: list[str]


class BatchWarning(Struct):
    """A warning, and which job of the batch it is about."""

    index: Count
    warning: str


class CreatedBatch(Struct):
    """The jobs of a batch, in its order."""

    created: Count
    job_ids: list[JobId]
    created_at: datetime
    warnings: list[BatchWarning]


class Execution(Struct):
    """One planned start of a job, in whatever state."""

    execution_id: ExecutionId
    job_id: JobId
    task_id: str | None
    user_id: str
    status: Status
    scheduled_at: datetime
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    lateness_s: float | None
    attempt: Annotated[int, Meta(description="how many attempts have begun")]
    worker_id: int | None
    error: str | None
    errors: Annotated[list[dict[str, Any]], Meta(description="of every attempt that failed or was lost")]
    result: Any
    losses: Annotated[int, Meta(description="how often its worker was lost")]
    skipped: Annotated[
        int | None, Meta(description="how many occurrences this row stands for, when they were left out")
    ]
    origin: Annotated[str | None, Meta(description="where it came from, when not from its schedule")]
    progress: Any = None


class Executions(Struct):
    """A page of executions, newest first."""

    executions: list[Execution]
    next_cursor: str | None


class ListedJob(Struct):
    """A job, with its newest execution that matches the filters."""

    job_id: JobId
    user_id: str
    task_id: str
    status: Status
    schedule: Schedule
    scheduled_at: datetime
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    error: str | None
    last_status: LastStatus
    last_run_at: LastRunAt
    next_run_at: datetime | None
    parameters: dict[str, Any]
    created_at: datetime
    cancelled_at: datetime | None
    paused_at: datetime | None
    problem: str | None


class Jobs(Struct):
    """A page of jobs, newest first."""

    jobs: list[ListedJob]
    next_cursor: str | None


class Job(Struct):
    """A job with all that is known about it."""

    job_id: JobId
    user_id: str
    task_id: str
    status: Status | None
    last_status: LastStatus
    last_run_at: LastRunAt
    schedule: Schedule
    next_runs: list[datetime]
    execution: Annotated[Execution | None, Meta(description="its newest")]
    parameters: dict[str, Any]
    max_retries: int | None
    timeout_s: float | None
    policies: dict[str, Any]
    trace: Annotated[dict[str, str] | None, Meta(description="`traceparent` and `tracestate`, which its runs hand on")]
    created_at: datetime
    updated_at: Annotated[
        datetime | None,
        Meta(description="when it was changed; of one that runs once also when it was run again by hand"),
    ]
    cancelled_at: datetime | None
    paused_at: datetime | None
    paused_note: str | None
    problem: str | None


class ChangedJob(Job):
    """A job, and whether that changed anything."""

    changed: bool


class PausedJob(Job):
    """A job, and how many pending executions were taken back."""

    taken_back: Count


class StartedRun(Struct):
    """An execution that was just made."""

    job_id: JobId
    execution_id: ExecutionId


class SkippedRun(Struct):
    """An occurrence that will be left out."""

    job_id: JobId
    execution_id: ExecutionId
    status: Literal["SKIPPED"]


class Backfilled(Struct):
    """What a backfill made, or with `dry_run` would make."""

    job_id: JobId
    dry_run: bool
    occurrences: Count
    made: Count
    times: list[datetime]


class Run(Struct):
    """A coming run: in UTC, on the wall of its zone, and what is odd about it."""

    at: datetime
    local: str | None
    note: str | None


class NextRuns(Struct):
    """When a job runs next."""

    job_id: JobId
    description: str
    runs: list[Run]


class Preview(Struct):
    """When a schedule would run, and what it says in plain English."""

    runs: list[Run]
    description: str
    timezone: str
    warnings: list[str]


class Peak(Struct):
    """The busiest minute."""

    at: datetime
    starts: Count


class Forecast(Struct):
    """Starts per minute of the coming 24 hours."""

    start: datetime
    minutes: list[Count]
    total: Count
    peak: Peak
    jobs_left_out: Count


class Http(Struct):
    """The endpoint of an HTTP task; of its headers only the names are shown."""

    url: str
    method: str
    headers: list[str]
    expected: list[str]
    retried: list[str]


class Task(Struct):
    """What jobs can name. `served`: a live worker knows it."""

    task_id: str
    kind: Literal["python", "http"]
    description: str | None
    queue: str
    priority: Annotated[int, Meta(ge=1, le=4)]
    max_retries: Count
    backoff_base_s: float
    backoff_factor: float
    backoff_cap_s: float
    backoff_jitter: float
    timeout_s: float | None
    max_concurrent: int | None
    concurrency_key: str | None
    max_per_key: int | None
    rate_per_s: float | None
    parameters_schema: dict[str, Any] | None
    created_at: datetime
    updated_at: datetime
    paused_at: datetime | None
    paused_note: str | None
    http: Http | None
    served: bool


class PutTask(Task):
    """A task, and its secret when one was made for it: it is not shown again."""

    secret: str | None = None


class Tasks(Struct):
    """All tasks."""

    tasks: list[Task]


class Operation(Struct):
    """An act on many executions, and how far it is."""

    operation_id: str
    user_id: str | None
    action: Literal["cancel", "rerun", "reschedule"]
    filter: dict[str, Any]
    at: datetime | None
    state: Literal["RUNNING", "FINISHED"]
    matched: Annotated[int, Meta(ge=0, description="executions it was for when it was asked for")]
    done: Count
    refused: Annotated[int, Meta(ge=0, description="those that had moved on, or were locked")]
    problem: str | None
    created_at: datetime
    worked_at: datetime | None
    finished_at: datetime | None


class Operations(Struct):
    """The newest operations."""

    operations: list[Operation]


class Counted(Struct):
    """What an operation would be for."""

    action: Literal["cancel", "rerun", "reschedule"]
    dry_run: bool
    matched: Count


class Finding(Struct):
    """Something that will hurt, or does."""

    kind: str
    subject: str
    sentence: str
    found_at: datetime


class Health(Struct):
    """That it works; where tokens are asked for, no findings."""

    status: Literal["ok"]
    database: Literal["ok"]
    workers: Count
    findings: list[Finding]


class Fault(Struct):
    """One thing that is wrong with a body: where, as a JSON pointer, and the rule. Of a batch: in which job."""

    pointer: str
    detail: str
    index: int | None = None


class Problem(Struct):
    """Every error (RFC 9457). `errors` has all that is wrong with a body, `parameter` what is with a query."""

    type: str
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    errors: list[Fault] | None = None
    parameter: str | None = None
    retry_after_s: float | None = None
