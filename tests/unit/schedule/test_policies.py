"""Policies: each value, the defaults, what is stored, and every fault named at once."""

from __future__ import annotations

from typing import Any

import pytest

from app.schedule.errors import ScheduleErrors
from app.schedule.policies import Policies
from tests.unit.schedule.reference import utc


def faults(given: Any, recurring: bool = True) -> dict[str, str]:
    with pytest.raises(ScheduleErrors) as caught:
        Policies.from_dict(given, recurring)
    return {error.field: error.rule for error in caught.value.errors}


@pytest.mark.parametrize("given", [None, {}, {"gap": None, "max_runs": None}, {"missed": "latest", "overlap": "skip"}])
def test_defaults_are_stored_as_nothing(given: dict[str, object] | None) -> None:
    policies = Policies.from_dict(given, recurring=True)
    assert policies is Policies.defaults(recurring=True)
    assert policies.to_dict() is None


def test_overlap_is_skipped_for_recurring_jobs_and_allowed_for_one_offs() -> None:
    assert Policies.from_dict({}, recurring=True).overlap == "skip"
    assert Policies.from_dict({}, recurring=False).overlap == "allow"
    assert Policies.from_dict({"overlap": "allow"}, recurring=True).to_dict() == {"overlap": "allow"}
    assert Policies.from_dict({"overlap": "skip"}, recurring=False).to_dict() == {"overlap": "skip"}


@pytest.mark.parametrize(
    "given",
    [
        {"gap": "skip"},
        {"fold": "second"},
        {"fold": "both"},
        {"missed": "all", "missed_window_s": 3600},
        {"missed": "skip"},
        {"overlap": "queue_one"},
        {"overlap": "cancel_running"},
        {"start_at": "2026-01-01T00:00:00Z", "end_at": "2026-02-01T00:00:00.500000Z"},
        {"max_runs": 1},
        {"jitter_s": 0.5},
        {"exclude": ["2026-12-25", "* * 1 1 *"]},
        {"expires_after_s": 30},
    ],
)
def test_what_is_stored_reads_back_the_same(given: dict[str, object]) -> None:
    policies = Policies.from_dict(given, recurring=True)
    assert policies.to_dict() == given
    assert Policies.from_dict(policies.to_dict(), recurring=True) == policies
    assert given.items() <= policies.full_dict().items()


def test_instants_are_kept_in_utc() -> None:
    policies = Policies.from_dict({"start_at": "2026-01-01T01:00:00+01:00"}, recurring=True)
    assert policies.start_at == utc("2026-01-01T00:00")
    assert policies.to_dict() == {"start_at": "2026-01-01T00:00:00Z"}


def test_all_faults_are_named_at_once() -> None:
    found = faults({"gap": "x", "max_runs": 0, "jitter": 5, "exclude": ["*/61 * * * *"], "start_at": "2026-01-01"})
    assert set(found) == {
        "policies.gap", "policies.max_runs", "policies.jitter", "policies.exclude", "policies.start_at"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("gap", "run", "run_at_transition, skip"),
        ("gap", True, "run_at_transition, skip"),
        ("gap", [], "run_at_transition, skip"),
        ("fold", "third", "first, second, both"),
        ("missed", "some", "latest, all, skip"),
        ("missed_window_s", 0, "from 1"),
        ("missed_window_s", "60", "a number of seconds"),
        ("overlap", "SKIP", "allow, skip, queue_one, cancel_running"),
        ("start_at", 1767225600, "epochs are not accepted"),
        ("end_at", "2026-01-01T00:00", "no offset"),
        ("start_at", "0001-01-01T00:00:00Z", "the years 2000 to 2199"),
        ("start_at", "1999-12-31T23:59:59Z", "the years 2000 to 2199"),
        ("end_at", "2200-01-01T00:00:00Z", "the years 2000 to 2199"),
        ("max_runs", -1, "from 1"),
        ("max_runs", 1.5, "a whole number"),
        ("max_runs", True, "a whole number"),
        ("max_runs", 2**31, "from 1"),
        ("jitter_s", -1, "from 0 to"),
        ("jitter_s", True, "a number of seconds"),
        ("jitter_s", float("nan"), "from 0 to"),
        ("jitter_s", float("inf"), "from 0 to"),
        pytest.param("jitter_s", 10**5000, "from 0 to", id="huge"),
        ("exclude", "2026-12-25", "must be a list"),
        ("exclude", [5], "entry 0"),
        ("exclude", ["2026-12-25", "2026-02-30"], "entry 1"),
        ("exclude", ["@every 5m"], "cannot exclude"),
        ("exclude", ["2026-12-25"] * 367, "at most 366"),
        ("expires_after_s", 0, "from 1"),
    ],
)
def test_each_fault_names_policy_and_rule(name: str, value: object, rule: str) -> None:
    found = faults({name: value})
    assert list(found) == [f"policies.{name}"]
    assert rule in found[f"policies.{name}"]


@pytest.mark.parametrize("given", [[], "skip", 5, True, [["gap", "skip"]]])
def test_policies_are_an_object(given: Any) -> None:
    assert faults(given) == {"policies": "policies must be an object"}


@pytest.mark.parametrize("name", ["", "a b", "\ud800", "x" * 1000, "recurring"])
def test_unknown_names_are_safe_to_show(name: str) -> None:
    (field,) = faults({name: 1})
    assert field.startswith("policies.")
    assert len(field) <= 80
    field.encode()


def test_an_end_before_the_start() -> None:
    assert "policies.end_at" in faults({"start_at": "2026-02-01T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"})


def test_one_offs_have_no_policies_of_recurring_jobs() -> None:
    assert set(faults({"missed": "all", "max_runs": 3, "jitter_s": 5}, recurring=False)) == {
        "policies.missed", "policies.max_runs"
    }  # fmt: skip
    Policies.from_dict({"missed": "latest", "expires_after_s": 5}, recurring=False)
