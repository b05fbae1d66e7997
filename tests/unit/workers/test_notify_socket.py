"""What systemd hears of a worker, and how often it wants to."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path

import pytest

from workers.notify_socket import GIVEN, notify, watchdog_pause_s


@pytest.mark.parametrize(
    "abstract", [False, pytest.param(True, marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux has them"))]
)
def test_facts_are_one_message_at_a_path_or_an_abstract_address(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"pgtick-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(5)
        systemd.bind("\0" + name if abstract else name)
        monkeypatch.setitem(GIVEN, "NOTIFY_SOCKET", "@" + name if abstract else name)
        notify(READY="1", STATUS="running")
        assert systemd.recv(1000) == b"READY=1\nSTATUS=running"


def test_without_anybody_who_listens_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GIVEN, "NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify(READY="1")


@pytest.mark.parametrize(
    ("microseconds", "pid", "pause_s"),
    [
        ("3000000", "", 1.5),
        ("3000000", "mine", 1.5),
        ("3000000", "1", None),
        ("soon", "", None),
        ("", "", None),
    ],
)
def test_the_watchdog_is_fed_at_half_its_time_if_it_is_ours(
    microseconds: str, pid: str, pause_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whose = str(os.getpid()) if pid == "mine" else pid
    for name, value in (("WATCHDOG_USEC", microseconds), ("WATCHDOG_PID", whose)):
        monkeypatch.setitem(GIVEN, name, value)
    assert watchdog_pause_s() == pause_s
