"""A nursery lives through what its host has no more of."""

from __future__ import annotations

import json
import os
import socket

import pytest

from app.settings import Settings
from workers.nursery import Nursery


def test_a_nursery_that_cannot_fork_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    worker, line = socket.socketpair()
    ours, theirs = socket.socketpair()
    with worker, line, ours:
        with theirs:
            socket.send_fds(worker, [b"\n"], [theirs.fileno()])
        nursery = Nursery(line, Settings.from_environment({"DATABASE_URL": "postgresql:///x"}))
        assert nursery._conceive()
        assert json.loads(ours.makefile().read()) == {"unstartable": "Resource temporarily unavailable"}


@pytest.mark.parametrize("unread", [b"", b"!"])
def test_the_end_of_a_worker_is_the_end_of_the_line_whatever_it_has_not_read(unread: bytes) -> None:
    worker, line = socket.socketpair()
    nursery = Nursery(line, Settings.from_environment({"DATABASE_URL": "postgresql:///x"}))
    line.send(unread)
    worker.close()
    with line:
        assert not nursery._conceive()
