"""Free ports of 127.0.0.1."""

from __future__ import annotations

import socket


def is_free(port: int) -> bool:
    if port == 0:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(near: int) -> int:
    """One of the twenty ports from `near` on, or any other if they are taken or `near` is 0."""
    for port in range(near, near + 20 if near else 0):
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        any_port: int = probe.getsockname()[1]
    return any_port
