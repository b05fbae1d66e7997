"""Adding a job as the API does, from the command line."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from app.api import parameters, requests, responses
from app.api.problems import Fault
from app.api.scheduling import plan
from app.api.services import Services
from app.clock import clock
from app.domain.ids import uuid7
from app.settings import Settings
from app.store.idempotency import Key


def add_job(settings: Settings, body: dict[str, Any], key: str | None) -> dict[str, Any] | list[Fault]:
    """The job that was made, as the API shows it, or everything that is wrong with it."""
    services = Services.make(settings)
    try:
        missing = services.tasks.missing({body["task_id"]})
        check = partial(parameters.faults, services.tasks)
        now = clock.now_utc()
        read = requests.explain(body)
        planned = plan(
            read, uuid7(clock.now()), settings.default_user, now, lambda task_id: task_id not in missing, check
        )
        digest = hashlib.sha256(b"cli\n" + repr(sorted(body.items())).encode()).digest()
        named = Key(read.post.user_id or settings.default_user, key, digest) if key else None
        if isinstance(planned, list):
            # What was right when it came first may be wrong by now, such as its time.
            before = services.writer.replay(named) if named and not read.faults else None
            if before is None:
                return planned
            planned = plan(read, before.job_ids[0], settings.default_user, before.at, lambda _: True)
            if isinstance(planned, list):
                return planned
            created = before
        else:
            created = services.writer.create(planned.job, named)
        planned.job.job_id = created.job_ids[0]
        shown = responses.created_job(planned, created.at)
        return shown | {"parameters": body["parameters"], "policies": body.get("policies", {})}
    finally:
        services.close()
