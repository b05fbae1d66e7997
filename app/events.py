"""Named events, emitted once where they happen; logs and metrics format them elsewhere.

An event is a name in snake_case and facts: `emit("lease_lost", claim_id=7, worker_id=3)`. Levels follow from the name's
entry in LEVELS, `info` when it has none.
"""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("pgtick")

counts: dict[str, int] = {}
"""How often each event happened in this process, logged or not."""

LEVELS = {
    "execution_retrying": logging.WARNING,
    "execution_failed": logging.ERROR,
    "lease_lost": logging.WARNING,
    "report_refused": logging.WARNING,
    "loop_failed": logging.ERROR,
    "database_unavailable": logging.WARNING,
    "schema_missing": logging.WARNING,
    "setting_unknown": logging.WARNING,
    "listener_lost": logging.WARNING,
    "leases_recovered": logging.WARNING,
    "lease_unrecoverable": logging.ERROR,
    "finding": logging.WARNING,
    "run_abandoned": logging.ERROR,
    "run_unstartable": logging.WARNING,
    "nursery_hung": logging.ERROR,
    "nursery_died": logging.ERROR,
    "worker_died": logging.ERROR,
    "worker_blocked": logging.WARNING,
    "worker_unhealthy": logging.ERROR,
    "drain_deadline": logging.WARNING,
    "stats_lost": logging.WARNING,
    "lease_keeper_died": logging.ERROR,
    "lease_keeper_hung": logging.ERROR,
    "report_unstorable": logging.ERROR,
    "report_given_up": logging.ERROR,
    "reports_held": logging.WARNING,
    "claims_handed_back": logging.WARNING,
    "schedule_broken": logging.ERROR,
    "task_unreadable": logging.ERROR,
    "retention_failed": logging.WARNING,
    "request_failed": logging.ERROR,
}


def emit(name: str, /, *, error: BaseException | str | None = None, **facts: Any) -> None:
    """Emits one event. An exception as `error` adds its type and text, and for a fault of ours (level error) its
    traceback; what a task raised comes as the text that its execution keeps."""
    counts[name] = counts.get(name, 0) + 1
    level = LEVELS.get(name, logging.INFO)
    if not logger.isEnabledFor(level):
        return
    if error is not None:
        facts["error"] = error if isinstance(error, str) else f"{type(error).__name__}: {error}".strip()
    traced = error if level >= logging.ERROR and isinstance(error, BaseException) else None
    logger.log(level, name, extra={"facts": facts}, exc_info=traced)
