"""Job ids and printed execution ids."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from app.domain.execution import ExecutionId
from app.domain.ids import parse_uuid, uuid7s

NOW = 1_796_024_945.998509


def test_ids_are_uuids_of_version_7_in_ascending_order() -> None:
    ids = uuid7s(10_000, NOW)
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in ids} == {(7, uuid.RFC_4122)}
    assert ids == sorted(ids)
    assert len(set(ids)) == 10_000


def test_an_id_names_the_millisecond_it_was_made_in() -> None:
    milliseconds = int(uuid7s(1, NOW)[0].replace("-", "")[:12], 16)
    assert milliseconds == int(datetime(2026, 11, 30, 7, 49, 5, 998000, tzinfo=UTC).timestamp() * 1000)


def test_an_execution_id_is_exact_to_the_microsecond() -> None:
    job_id = uuid7s(1, NOW)[0]
    at = datetime(2026, 11, 30, 7, 49, 5, 998509, tzinfo=UTC)
    assert str(ExecutionId(at, job_id)) == f"1796024945998509-{job_id}"
    assert ExecutionId.parse(f"1796024945998509-{job_id}") == ExecutionId(at, job_id)


JOB_ID = "01a22b71-1d75-740f-a9c2-cdb05c1549c9"


@pytest.mark.parametrize("text", ["", "1796024945998509", f"x-{JOB_ID}", "1-1-1-1-1-1", "9" * 18 + f"-{JOB_ID}"])
def test_what_is_no_execution_id_is_none(text: str) -> None:
    assert ExecutionId.parse(text) is None


def test_ids_are_read_in_any_case_and_only_in_their_usual_form() -> None:
    job_id = uuid7s(1, NOW)[0]
    assert parse_uuid(job_id.upper()) == job_id
    assert parse_uuid(job_id.replace("-", "")) is None
    assert parse_uuid("{" + job_id + "}") is None
