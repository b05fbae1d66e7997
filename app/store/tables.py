"""SQLAlchemy metadata of the tables: what `alembic check` compares and the search builds its queries from.

The tables are made by SQL in migrations/versions; constraints and comments live there.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData(schema="pgtick")

Time = DateTime(timezone=True)


def _required(name: str, kind: Any, *arguments: Any) -> Column[Any]:
    return Column(name, kind, *arguments, nullable=False)


users = Table(
    "users",
    metadata,
    Column("user_id", Text, primary_key=True),
    _required("role", Text),
    _required("created_at", Time),
)

api_tokens = Table(
    "api_tokens",
    metadata,
    Column("token_id", BigInteger, Identity(always=True), primary_key=True),
    _required("user_id", Text, ForeignKey(users.c.user_id, ondelete="CASCADE")),
    _required("name", Text),
    _required("token_hash", LargeBinary),
    _required("created_at", Time),
    Column("expires_at", Time),
    Column("revoked_at", Time),
    UniqueConstraint("token_hash", name="api_tokens_token_hash_key"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("task_id", Text, primary_key=True),
    _required("task_key", Integer, Identity(always=True)),
    _required("kind", Text),
    _required("target", Text),
    _required("pool", Text),
    Column("description", Text),
    _required("queue", Text),
    _required("priority", SmallInteger),
    _required("max_retries", SmallInteger),
    _required("backoff_base_s", Double),
    _required("backoff_factor", Double),
    _required("backoff_cap_s", Double),
    _required("backoff_jitter", Double),
    Column("timeout_s", Double),
    Column("max_concurrent", Integer),
    Column("concurrency_key", Text),
    Column("max_per_key", Integer),
    Column("rate_per_s", Double),
    Column("parameters_schema", JSONB),
    _required("options", JSONB),
    _required("created_at", Time),
    _required("updated_at", Time),
    Column("paused_at", Time),
    Column("paused_note", Text),
    UniqueConstraint("task_key", name="tasks_task_key_key"),
)

task_secrets = Table(
    "task_secrets",
    metadata,
    Column("task_id", Text, ForeignKey("pgtick.tasks.task_id", ondelete="CASCADE"), primary_key=True),
    _required("secret", Text),
    _required("headers", JSONB),
)

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    _required("user_id", Text),
    _required("task_id", Text),
    _required("schedule_type", Text),
    Column("expression", Text),
    _required("timezone", Text),
    Column("run_at", Time),
    _required("parameters", JSONB),
    Column("max_retries", SmallInteger),
    Column("timeout_s", Double),
    Column("policies", JSONB),
    Column("trace", JSONB),
    _required("created_at", Time),
    Column("updated_at", Time),
    Column("cancelled_at", Time),
    Index("jobs_cancelled", "user_id", "job_id", postgresql_where=text("cancelled_at IS NOT NULL")),
    postgresql_partition_by="RANGE (job_id)",
)

schedules = Table(
    "schedules",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    _required("user_id", Text),
    _required("task_key", Integer),
    Column("next_run_at", Time),
    Column("expression", Text),
    _required("timezone", Text),
    _required("priority", SmallInteger),
    Column("policies", JSONB),
    _required("anchor_at", Time),
    Column("planned_through", Time),
    Column("zone_version", Text),
    _required("runs", BigInteger),
    Column("paused_at", Time),
    Column("paused_note", Text),
    Column("skips", ARRAY(Time)),
    Column("cancelled_at", Time),
    Column("problem", Text),
    Index(
        "schedules_by_next_run",
        "next_run_at",
        postgresql_where=text(
            "next_run_at IS NOT NULL AND paused_at IS NULL AND cancelled_at IS NULL AND problem IS NULL"
        ),
    ),
    Index("schedules_by_user", "user_id", "next_run_at"),
)

pending_executions = Table(
    "pending_executions",
    metadata,
    _required("job_id", Uuid),
    _required("scheduled_at", Time),
    _required("due_at", Time),
    _required("user_id", Text),
    _required("task_key", Integer),
    _required("priority", SmallInteger),
    _required("attempt", SmallInteger),
    _required("losses", SmallInteger),
    _required("suspect", Boolean),
    Column("overlap", Text),
    Column("expires_at", Time),
    Column("origin", Text),
    Column("limit_key", Text),
    Column("errors", JSONB),
    Index("pending_executions_for_claiming", "priority", "due_at"),
    Index("pending_executions_by_job", "job_id"),
    Index("pending_executions_by_user", "user_id", "scheduled_at"),
    Index("pending_executions_held", "task_key", "limit_key", "due_at", postgresql_where=text("priority > 4")),
    Index(
        "pending_executions_let_in",
        "task_key",
        "limit_key",
        postgresql_where=text("limit_key IS NOT NULL AND priority <= 4"),
    ),
    postgresql_partition_by="RANGE (due_at)",
)

running_executions = Table(
    "running_executions",
    metadata,
    Column("claim_id", BigInteger, primary_key=True, autoincrement=False),
    _required("job_id", Uuid),
    _required("scheduled_at", Time),
    _required("due_at", Time),
    _required("user_id", Text),
    _required("task_key", Integer),
    _required("priority", SmallInteger),
    _required("attempt", SmallInteger),
    _required("losses", SmallInteger),
    _required("suspect", Boolean),
    Column("overlap", Text),
    Column("expires_at", Time),
    Column("origin", Text),
    _required("worker_id", BigInteger),
    _required("claimed_at", Time),
    _required("lease_expires_at", Time),
    Column("cancel_requested_at", Time),
    Column("revoked_at", Time),
    _required("awaited", Boolean),
    Column("limit_key", Text),
    Column("progress", JSONB),
    Column("errors", JSONB),
    Index("running_executions_without_overlap", "job_id", unique=True, postgresql_where=text("overlap IS NOT NULL")),
    Index("running_executions_with_limits", "task_key", "limit_key", postgresql_where=text("limit_key IS NOT NULL")),
)

finished_executions = Table(
    "finished_executions",
    metadata,
    Column("job_id", Uuid),
    Column("scheduled_at", Time),
    _required("user_id", Text),
    _required("task_key", Integer),
    _required("status", Text),
    _required("attempt", SmallInteger),
    _required("due_at", Time),
    Column("started_at", Time),
    _required("finished_at", Time),
    Column("worker_id", BigInteger),
    _required("losses", SmallInteger),
    Column("skipped", Integer),
    Column("origin", Text),
    Column("error", Text),
    Column("errors", JSONB),
    Column("result", JSONB),
    PrimaryKeyConstraint("job_id", "scheduled_at", name="finished_executions_pkey"),
    Index("finished_executions_by_user", "user_id", "scheduled_at"),
    Index(
        "finished_executions_not_completed",
        "status",
        "scheduled_at",
        "job_id",
        postgresql_where=text("status <> 'COMPLETED'"),
    ),
    postgresql_partition_by="RANGE (scheduled_at)",
)

operations = Table(
    "operations",
    metadata,
    Column("operation_id", BigInteger, Identity(always=True), primary_key=True),
    Column("user_id", Text),
    _required("action", Text),
    _required("filter", JSONB),
    Column("at", Time),
    _required("matched", BigInteger),
    _required("done", BigInteger),
    _required("refused", BigInteger),
    Column("problem", Text),
    _required("created_at", Time),
    Column("worked_at", Time),
    Column("finished_at", Time),
    Column("after_at", Time),
    Column("after_id", Uuid),
    Index("operations_to_do", "operation_id", postgresql_where=text("finished_at IS NULL")),
)

workers = Table(
    "workers",
    metadata,
    Column("worker_id", BigInteger, Identity(always=True), primary_key=True),
    _required("name", Text),
    _required("state", Text),
    _required("started_at", Time),
    _required("last_seen_at", Time),
    Column("stopped_at", Time),
    Column("drain_requested_at", Time),
    _required("running", Integer),
    _required("capacity", Integer),
    _required("pools", JSONB),
    Column("blocked_since", Time),
    _required("task_keys", ARRAY(Integer)),
    Column("queues", ARRAY(Text)),
    _required("version", Text),
)

execution_stats = Table(
    "execution_stats",
    metadata,
    _required("minute", Time),
    _required("task_key", Integer),
    _required("worker_id", BigInteger),
    _required("started", Integer),
    _required("completed", Integer),
    _required("failed", Integer),
    _required("retried", Integer),
    _required("run_ms", BigInteger),
    _required("lateness", ARRAY(Integer)),
    Index("execution_stats_by_minute", "minute", "task_key"),
    Index("execution_stats_not_rolled_up", "minute", postgresql_where=text("worker_id <> 0")),
    postgresql_partition_by="RANGE (minute)",
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("user_id", Text),
    Column("key", Text),
    _required("body_hash", LargeBinary),
    Column("response", JSONB),
    _required("created_at", Time),
    PrimaryKeyConstraint("user_id", "key", name="idempotency_keys_pkey"),
    Index("idempotency_keys_by_age", "created_at"),
)

findings = Table(
    "findings",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    _required("sentence", Text),
    _required("found_at", Time),
    _required("seen_at", Time),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("entry_id", BigInteger, Identity(always=True), primary_key=True),
    _required("at", Time),
    _required("action", Text),
    _required("subject", Text),
    _required("db_user", Text),
    Column("user_id", Text),
    _required("details", JSONB),
    Index("audit_log_by_subject", "subject", "entry_id"),
)

archives = Table(
    "archives",
    metadata,
    Column("name", Text, primary_key=True),
    _required("parent", Text),
    _required("from_at", Time),
    _required("until_at", Time),
    Column("claimed_by", Text),
    Column("claimed_until", Time),
    Column("rows", BigInteger),
    Column("bytes", BigInteger),
    Column("sha256", Text),
    Column("location", Text),
    _required("detached_at", Time),
    Column("written_at", Time),
    Column("dropped_at", Time),
    Index("archives_not_dropped", "name", postgresql_where=text("dropped_at IS NULL")),
)

partition_windows = Table(
    "partition_windows",
    metadata,
    Column("parent", Text, primary_key=True),
    _required("from_at", Time),
    _required("until_at", Time),
    _required("step", Interval),
)
