"""W3C Trace Context: which headers are kept with a job, by the API and in SQL, and which are ignored."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from app.domain.trace import read_trace
from tests.support.api import Api

Connection = psycopg.Connection[Any]

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
PARENT = f"00-{IDS}-01"
KEPT = {"traceparent": PARENT}

PARENTS: list[tuple[str, str | None]] = [
    (PARENT, PARENT),
    (f"00-{IDS}-00", f"00-{IDS}-00"),
    (f"00-{IDS}-ff", f"00-{IDS}-ff"),
    (f" {PARENT}\t", PARENT),
    # Of later versions, what this one knows: the ids and two flags.
    (f"01-{IDS}-01", PARENT),
    (f"cc-{IDS}-fe-what-the-future-will-be-like", f"00-{IDS}-02"),
    (f"cc-{IDS}-01-", PARENT),
    (f"cc-{IDS}-01.what", None),
    (f"{PARENT}-", None),
    (f"{PARENT}-more", None),
    (f"ff-{IDS}-01", None),
    (f"0-{IDS}-01", None),
    (f"00-{IDS}-1", None),
    (f"00-{IDS.upper()}-01", None),
    (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
    (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", None),
    (f"00-{IDS[:-1]}-01", None),
    (f"00-{IDS}x-01", None),
    (f"{PARENT},{PARENT}", None),
    ("", None),
    ("é", None),
]
STATES: list[tuple[str, bool]] = [
    ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", True),
    ("a=1 , b=2,\tc=3", True),
    ("a=1,,b=2", True),
    ("tenant@system=x!#y z", True),
    ("0a_-*/=~", True),
    ("a=" + "x" * 510, True),
    (",".join(f"k{n}=1" for n in range(32)), True),
    ("a=" + "x" * 511, False),
    (",".join(f"k{n}=1" for n in range(33)), False),
    ("A=1", False),
    ("a=", False),
    ("=1", False),
    ("a", False),
    ("a=b=c", False),
    ("a =1", False),
    ("a=1;b=2, é=3", False),
    ("a=\x01", False),
    ("", False),
    (" ", False),
]


def both(connection: Connection, traceparent: str | None, tracestate: str | None) -> dict[str, str] | None:
    """What Python and SQL keep of it, which is the same."""
    text = read_trace(traceparent, tracestate)
    kept: dict[str, str] | None = None if text is None else json.loads(text)
    row = connection.execute("select pgtick.read_trace(%s, %s)", [traceparent, tracestate]).fetchone()
    assert row == (kept,), (traceparent, tracestate)
    return kept


def test_a_parent_is_kept_when_it_is_valid(connection: Connection) -> None:
    for given, kept in PARENTS:
        assert both(connection, given, None) == (kept and {"traceparent": kept}), given
    assert both(connection, None, "a=1") is None


def test_a_state_is_kept_when_it_and_its_parent_are_valid(connection: Connection) -> None:
    for given, valid in STATES:
        assert both(connection, PARENT, given) == (KEPT | {"tracestate": given} if valid else KEPT), given
        assert both(connection, "nonsense", given) is None


def test_a_job_is_kept_and_shown_with_its_trace(shared_api: Api) -> None:
    posted = shared_api.post(traceparent=PARENT, tracestate="a=1")
    assert posted.json is not None
    assert shared_api.get(f"/jobs/{posted.json['job_id']}")["trace"] == KEPT | {"tracestate": "a=1"}
    assert shared_api.get(f"/jobs/{shared_api.created()['job_id']}")["trace"] is None


@pytest.mark.parametrize(("given", "kept"), PARENTS)
def test_a_post_is_never_refused_for_its_trace(shared_api: Api, given: str, kept: str | None) -> None:
    posted = shared_api.post(traceparent=given)
    assert posted.status_code == 201
    assert posted.json is not None
    assert shared_api.get(f"/jobs/{posted.json['job_id']}")["trace"] == (kept and {"traceparent": kept})


@pytest.mark.parametrize("count", [2, 200])
def test_all_jobs_of_a_batch_have_its_trace(api: Api, connection: Connection, count: int) -> None:
    jobs = [{"task_id": "send_email"}, {"task_id": "send_email", "schedule": "0 10 * * *"}] * (count // 2)
    assert api.call("POST", "/jobs/batch", json=jobs, headers=KEPT).status_code == 201
    found = connection.execute("select trace, count(*) from pgtick.jobs group by 1").fetchall()
    assert found == [(KEPT, count)]


def test_an_edit_leaves_the_trace(api: Api) -> None:
    posted = api.post({"schedule": "0 10 * * *"}, **KEPT)
    assert posted.json is not None
    path = f"/jobs/{posted.json['job_id']}"
    assert api.call("PATCH", path, json={"schedule": "0 11 * * *", "parameters": {"a": 1}}).status_code == 200
    assert api.get(path)["trace"] == KEPT
