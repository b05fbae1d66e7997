"""Talks to systemd: READY, STATUS, WATCHDOG and STOPPING through $NOTIFY_SOCKET (sd_notify(3)); silent without it."""

from __future__ import annotations

import os
import socket


def notify(**facts: str) -> None:
    """Sends assignments, e.g. `notify(READY="1", STATUS="claiming")`; a missing or full socket is no error."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    message = "\n".join(f"{name}={value}" for name, value in facts.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.connect("\0" + address[1:] if address.startswith("@") else address)
            sender.sendall(message.encode())
        except OSError:
            return


def watchdog_pause_s() -> float | None:
    """How often systemd wants to hear from us, in seconds: half of WatchdogSec; None without a watchdog."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    mine = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 2e6 if microseconds.isdecimal() and mine else None
