"""Bodies of jobs: what is taken as it is, and that every fault of a refused one is named with its place."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from app.api import requests
from app.api.json_checks import MAX_DEPTH, Malformed, looks_harmless
from app.api.problems import MAX_FAULTS


def faults(body: str | bytes) -> dict[str, str]:
    raw = body.encode() if isinstance(body, str) else body
    return dict(requests.read_job(raw).faults)


def with_parameters(text: str) -> str:
    return f'{{"task_id": "t", "parameters": {text}}}'


def nested(levels: int) -> str:
    return '{"a": ' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    "parameters",
    [
        "{}",
        '{"a": 1, "b": [1.5, true, null], "c": {"d": {"e": "f"}}}',
        '{"a": "quotes \\" and \\\\ and {[braces"}',
        '{"text": "e-5 1e5", "n": 1e5, "small": 1e-5}',
        '{ "spaced"  : 1 ,\\n"lines": 2}'.replace("\\n", "\n"),
        '{"emoji": "\\ud83d\\ude00"}',
        '{"n": 123456789012345678901234567890}',
        '{"x\\":y": 1}',
        '{"a": 1e-99}',
        nested(MAX_DEPTH),
    ],
)
def test_good_parameters_are_kept_as_they_were_written(parameters: str) -> None:
    read = requests.read_job(with_parameters(parameters).encode())
    assert read.faults == []
    assert bytes(read.post.parameters).decode() == parameters


@pytest.mark.parametrize(
    ("parameters", "pointer", "rule"),
    [
        ('{"a": [1, NaN]}', "/parameters/a/1", "NaN"),
        ('{"a": Infinity}', "/parameters/a", "Infinity"),
        ('{"a": -Infinity}', "/parameters/a", "Infinity"),
        ('{"a": 1e400}', "/parameters/a", "outside"),
        ('{"a": 1e-20000}', "/parameters/a", "outside"),
        ('{"a": 0.' + "0" * 20_000 + "1}", "/parameters/a", "outside"),
        ('{"a": ' + "9" * 5000 + "}", "/parameters/a", "outside"),
        ('{"a": {"b/c~d": "x\\u0000y"}}', "/parameters/a/b~1c~0d", "NUL"),
        ('{"\\u0000": 1}', "/parameters/\0", "NUL"),
        ('{"a": "\\ud800"}', "/parameters/a", "surrogate"),
        ('{"a": ["\\udc00\\ud800"]}', "/parameters/a/0", "surrogate"),
        ('{"a": 1, "a": 2}', "/parameters/a", "twice"),
        ('{"a": {"b": {"c": 1, "c": 1}}}', "/parameters/a/b/c", "twice"),
        ('{"a": 1, "a" :2}', "/parameters/a", "twice"),
        ('{"a"\t: 1, "a"\n: 2}', "/parameters/a", "twice"),
        ('{"a": 1.' + "3" * 500 + "}", "/parameters/a", "outside"),
        ("[]", "/parameters", "object"),
        ("null", "/parameters", "object"),
        ('"text"', "/parameters", "object"),
        ("1", "/parameters", "object"),
    ],
)
def test_bad_parameters_are_refused_with_their_place(parameters: str, pointer: str, rule: str) -> None:
    found = faults(with_parameters(parameters))
    assert list(found) == [pointer]
    assert rule in found[pointer]


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 70, 1_500, 100_000])
def test_nesting_beyond_the_limit_is_refused_however_deep(levels: int) -> None:
    [(pointer, rule)] = faults(with_parameters(nested(levels))).items()
    assert pointer.startswith("/parameters")
    assert "deeper" in rule


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ('{"task": "t"}', {"/task", "/task_id"}),
        ('{"task_id": 5, "max_retries": -1, "timeout_s": 0}', {"/task_id", "/max_retries", "/timeout_s"}),
        ('{"task_id": "t", "max_retries": true}', {"/max_retries"}),
        ('{"task_id": "t", "max_retries": 1.5}', {"/max_retries"}),
        ('{"task_id": "t", "timeout_s": "5"}', {"/timeout_s"}),
        ('{"task_id": "t", "user_id": ""}', {"/user_id"}),
        ('{"task_id": "t", "user_id": "a\\nb"}', {"/user_id"}),
        ('{"task_id": "t", "user_id": "ann\\n"}', {"/user_id"}),
        ('{"task_id": "t", "schedule": 1796024945}', {"/schedule"}),
        ('{"task_id": "t", "schedule": true}', {"/schedule"}),
        ('{"task_id": "t", "schedule": {"cron": 5}}', {"/schedule/cron"}),
        ('{"task_id": "t", "schedule": {"corn": "* * * * *"}}', {"/schedule"}),
        ('{"task_id": "t", "schedule": {"date": 1796024945000}}', {"/schedule/date"}),
        ('{"task_id": "t", "policies": []}', {"/policies"}),
        ('{"task_id": "t", "task_id": "u"}', {"/task_id"}),
        ('{"task_id": "t", "user_id": "\\ud800", "parameters": {"a": NaN}}', {"/user_id", "/parameters/a"}),
        ("[]", {""}),
        ("null", {""}),
        ('"now"', {""}),
    ],
)
def test_every_fault_of_a_body_is_named(body: str, pointers: set[str]) -> None:
    assert set(faults(body)) == pointers


def test_a_misspelt_field_is_told_the_right_name() -> None:
    assert "did you mean parameters?" in faults('{"task_id": "t", "paramters": {}}')["/paramters"]


@pytest.mark.parametrize("body", ["{", "", '{"task_id": "t",}', "{'task_id': 't'}", '{"task_id": "t"} x', "\ufeff{}"])
def test_what_is_no_json_is_malformed(body: str) -> None:
    with pytest.raises(Malformed):
        requests.read_job(body.encode())


def test_the_cheap_look_passes_ordinary_jobs() -> None:
    job: dict[str, Any] = {"task_id": "t", "schedule": {"date": "x"}, "parameters": {"a": {"b": [{"c": "one-off"}]}}}
    for body in (json.dumps(job), json.dumps(job, separators=(",", ":"))):
        assert looks_harmless(body.encode())


def test_a_batch_reads_each_job_by_itself() -> None:
    reads = requests.read_batch(b'[{"task_id": "a"}, {"task_id": 5}, 7, {"task_id": "b", "parameters": {"x": NaN}}]')
    assert [[pointer for pointer, _ in read.faults] for read in reads] == [[], ["/task_id"], [""], ["/parameters/x"]]


def test_what_goes_too_deep_in_a_batch_is_blamed_at_its_place() -> None:
    good, deep = '{"task_id": "a", "parameters": {"x": [1, 2]}}', with_parameters(nested(5_000))
    reads = requests.read_batch(f"[{good}, {good}, {deep}, {good}]".encode())
    assert [read.faults for read in reads] == [[], [], [("/parameters", "nested deeper than 64 levels")]]


@pytest.mark.parametrize(
    "body",
    [
        with_parameters("{" + ",".join(f'"k{n}": 1' for n in [*range(40_000)] * 2) + "}"),
        "{" + ",".join(f'"unknown{n}": 1' for n in range(80_000)) + "}",
        '{"task_id": "t", ' + ",".join(f'"{n}": [NaN]' for n in range(40_000)) + "}",
    ],
    ids=["twice", "unknown", "faulty"],
)
def test_no_more_is_told_than_helps_and_in_no_time(body: str) -> None:
    since = time.process_time()
    assert len(requests.read_job(body.encode()).faults) <= 2 * MAX_FAULTS
    assert len(requests.read_lines("\n".join([body[:2_000] + "}"] * 1_000).encode())) == 1_000
    assert time.process_time() - since < 2


def test_a_batch_of_lines_skips_blank_ones_and_blames_broken_ones() -> None:
    reads = requests.read_lines(b'{"task_id": "a"}\r\n\n{"task_id"\n{"task_id": "b"}\n')
    assert [len(read.faults) for read in reads] == [0, 1, 0]
    assert "not JSON" in reads[1].faults[0].detail


def test_bodies_that_mean_the_same_are_the_same() -> None:
    assert requests.canonical(b'{"a": 1, "b": {"c": 2}}') == requests.canonical(b'{"b":{"c":2},\n"a":1}')
    assert requests.canonical(b'{"a": 1}') != requests.canonical(b'{"a": 2}')
