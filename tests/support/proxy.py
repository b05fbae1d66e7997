"""A network between worker and server that can be cut, swallowed, or made deaf for notifications."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

NOTIFICATION = b"A"


class Proxy:
    """Forwards to the server of `dsn`; `dsn` of this object leads through it.

    `blackholed`: what is sent either way disappears, and connections stay open. `deaf`: notifications of the server are
    left out, as behind a transaction pooler. `cut()` closes every connection.
    """

    def __init__(self, dsn: str) -> None:
        given: dict[str, Any] = conninfo_to_dict(dsn)
        self._server = (str(given["host"]), int(given["port"]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=self._listener.getsockname()[1], sslmode="disable")
        self.blackholed = False
        self.deaf = False
        self.refusing = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        opened, self._open = self._open, []
        for line in opened:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            self._open += [client, server]
            threading.Thread(target=self._forward, args=[client, server], daemon=True).start()
            threading.Thread(target=self._answer, args=[server, client], daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.blackholed:
                    target.sendall(data)
        self._end(source, target)

    def _answer(self, source: socket.socket, target: socket.socket) -> None:
        """Message by message: a type byte, a length, the rest."""
        buffer = b""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                buffer += data
                out = b""
                while len(buffer) >= 5 and len(buffer) >= (size := 1 + int.from_bytes(buffer[1:5])):
                    message, buffer = buffer[:size], buffer[size:]
                    if not (self.deaf and message[:1] == NOTIFICATION):
                        out += message
                if out and not self.blackholed:
                    target.sendall(out)
        self._end(source, target)

    def _end(self, *lines: socket.socket) -> None:
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
