"""What is wrong with a body is said in words of JSON, with the values that are allowed."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from app.api import wording
from app.api.operations import OperationPost
from app.api.requests import JobPost
from app.api.tasks import TaskPut


@pytest.mark.parametrize(
    ("kind", "name", "value", "at", "rule"),
    [
        (OperationPost, "action", "kill", "/action", "must be cancel, rerun or reschedule"),
        (OperationPost, "filter", "all", "/filter", "must be an object, not a string"),
        (OperationPost, "filter", {"status": "PENDING"}, "/filter/status", "must be an array or null, not a string"),
        (OperationPost, "filter", {"status": []}, "/filter/status", "must have at least 1 item"),
        (OperationPost, "filter", {"status": [1]}, "/filter/status/0", "must be a string, not a whole number"),
        (OperationPost, "filter", {"task": "x"}, "/filter", "there is no field task"),
        (OperationPost, "dry_run", "yes", "/dry_run", "must be true or false, not a string"),
        (JobPost, "user_id", "a\nb", "/user_id", "must be without control characters"),
        (JobPost, "user_id", "ann\n", "/user_id", "must be without control characters"),
        (JobPost, "user_id", "", "/user_id", "must have at least 1 character"),
        (JobPost, "user_id", "x" * 201, "/user_id", "must have at most 200 characters"),
        (JobPost, "max_retries", -1, "/max_retries", "must be at least 0"),
        (JobPost, "timeout_s", 0, "/timeout_s", "must be greater than 0"),
        (JobPost, "schedule", {"type": "x"}, "/schedule/type", "must be NOW, DATE, CRON, now, date or cron"),
        (TaskPut, "expected_statuses", ["9xx"], "/expected_statuses/0", "must be a status such as 404, or a class of"),
        (TaskPut, "backoff", {"factor": 0.5}, "/backoff/factor", "must be at least 1"),
    ],
)
def test_a_fault_points_to_the_place_and_says_the_rule(kind: Any, name: str, value: Any, at: str, rule: str) -> None:
    wanted = get_type_hints(kind, include_extras=True)[name]
    found = wording.mismatch(value, wanted, f"/{name}")
    assert found is not None
    assert found.pointer == at
    assert found.detail.startswith(rule)
