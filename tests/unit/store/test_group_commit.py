"""Group commit: who writes, what goes together, and who is told of an error."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.store.group_commit import GroupCommit
from app.store.pool import Unavailable
from tests.support.waiting import eventually


class Writes:
    """A database that takes its time: each write waits until it is let go."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.gate = threading.Semaphore(0)
        self.failure: Exception | None = None

    def __call__(self, items: Sequence[str]) -> Sequence[str | BaseException]:
        self.groups.append(list(items))
        assert self.gate.acquire(timeout=5)
        if self.failure:
            raise self.failure
        return [ValueError(item) if item == "bad" else item.upper() for item in items]


@pytest.fixture
def writes() -> Writes:
    return Writes()


def waiting(group: GroupCommit[str, str]) -> int:
    return len(group._waiting)


def test_a_lone_item_is_written_at_once_by_its_own_thread(writes: Writes) -> None:
    threads = threading.active_count()
    writes.gate.release()
    assert GroupCommit(writes).submit("a") == "A"
    assert writes.groups == [["a"]]
    assert threading.active_count() == threads


def test_what_comes_during_a_write_goes_together_in_the_next(writes: Writes) -> None:
    group: GroupCommit[str, str] = GroupCommit(writes)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(group.submit, "a")
        eventually(lambda: writes.groups)
        rest = [pool.submit(group.submit, item) for item in "bcde"]
        eventually(lambda: waiting(group) == 4)
        writes.gate.release(2)
        assert first.result(5) == "A"
        assert [one.result(5) for one in rest] == ["B", "C", "D", "E"]
    assert [sorted(items) for items in writes.groups] == [["a"], ["b", "c", "d", "e"]]


def test_an_invalid_item_fails_alone(writes: Writes) -> None:
    group: GroupCommit[str, str] = GroupCommit(writes)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(group.submit, "a")
        eventually(lambda: writes.groups)
        bad, good = pool.submit(group.submit, "bad"), pool.submit(group.submit, "good")
        eventually(lambda: waiting(group) == 2)
        writes.gate.release(2)
        assert first.result(5) == "A"
        assert good.result(5) == "GOOD"
        with pytest.raises(ValueError, match="bad"):
            bad.result(5)


def test_a_group_is_limited_and_the_rest_is_written_next(writes: Writes) -> None:
    group: GroupCommit[str, str] = GroupCommit(writes, limit=2)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(group.submit, "a")
        eventually(lambda: writes.groups)
        rest = [pool.submit(group.submit, item) for item in "bcd"]
        eventually(lambda: waiting(group) == 3)
        writes.gate.release(3)
        assert {one.result(5) for one in [first, *rest]} == {"A", "B", "C", "D"}
    assert [len(items) for items in writes.groups] == [1, 2, 1]


def test_an_outage_answers_those_who_waited_through_it_and_later_ones_try_anew(writes: Writes) -> None:
    group: GroupCommit[str, str] = GroupCommit(writes)
    writes.failure = Unavailable("down")
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(group.submit, "a")
        eventually(lambda: writes.groups)
        second = pool.submit(group.submit, "b")
        eventually(lambda: waiting(group) == 1)
        writes.gate.release()
        for one in (first, second):
            with pytest.raises(Unavailable):
                one.result(5)
    writes.failure = None
    writes.gate.release()
    assert group.submit("c") == "C"
    assert writes.groups == [["a"], ["c"]]


def test_a_fault_of_the_writer_is_not_put_on_those_who_wait(writes: Writes) -> None:
    group: GroupCommit[str, str] = GroupCommit(writes)
    writes.failure = KeyError("a bug")
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(group.submit, "a")
        eventually(lambda: writes.groups)
        second = pool.submit(group.submit, "b")
        eventually(lambda: waiting(group) == 1)
        writes.gate.release()
        with pytest.raises(KeyError):
            first.result(5)
        writes.failure = None
        writes.gate.release()
        assert second.result(5) == "B"


def test_nobody_waits_for_ever_when_answers_are_missing() -> None:
    group: GroupCommit[str, str] = GroupCommit(lambda items: [])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="0 answers for 1 items"):
            group.submit("a")
