"""Talks to systemd: READY, STATUS, WATCHDOG and STOPPING through $NOTIFY_SOCKET (sd_notify(3)); silent without it."""

from __future__ import annotations

import contextlib
import os
import socket

GIVEN = {name: os.environ.get(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")}
"""What systemd told this process when it started it, whatever its tasks have changed since."""


def notify(**facts: str) -> None:
    """Sends assignments, e.g. `notify(READY="1", STATUS="claiming")`; never waits, never fails.

    A socket that is missing or full, or that there is no descriptor left for, is no error.
    """
    address = GIVEN["NOTIFY_SOCKET"]
    if not address:
        return
    message = "\n".join(f"{name}={value}" for name, value in facts.items())
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.sendall(message.encode())


def watchdog_pause_s() -> float | None:
    """How often systemd wants to hear from us, in seconds: half of WatchdogSec; None without a watchdog."""
    microseconds = GIVEN["WATCHDOG_USEC"]
    mine = GIVEN["WATCHDOG_PID"] in ("", str(os.getpid()))
    return int(microseconds) / 2e6 if microseconds.isdecimal() and mine else None
