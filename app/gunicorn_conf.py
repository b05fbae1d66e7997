"""How gunicorn serves the API: `gunicorn -c python:app.gunicorn_conf app.wsgi:app`.

Requests mostly wait: for a commit that they share, or for a page. As greenlets they do that at a third of the cost of
threads, which would fight for the interpreter. One process per core does the Python work.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any, NoReturn

from gunicorn import util  # type: ignore[import-untyped]

from app.errors import MISCONFIGURED, SettingsError
from app.settings import Settings


def _refuse(faults: list[str]) -> NoReturn:
    print("\n".join(faults), file=sys.stderr, flush=True)
    sys.exit(MISCONFIGURED)


try:
    _settings = Settings.from_environment()
except SettingsError as error:
    _refuse(error.faults)


READ_ADDRESS = """
import sys
from app.errors import MISCONFIGURED, SettingsError
from app.store.connections import parsed
try:
    parsed()
except SettingsError as error:
    print(error, file=sys.stderr)
    sys.exit(MISCONFIGURED)
"""


def on_starting(server: object) -> None:
    """gunicorn calls it before it listens: what cannot be served is refused once, not by each of its processes.

    Requests that will never reach the application are refused as it refuses others.
    """
    util.write_error = write_problem
    for variable, rule in _settings.unknown():
        print(variable, rule, file=sys.stderr, flush=True)
    if faults := _settings.serving_faults():
        _refuse(faults)
    # Elsewhere: loaded here, before gevent has patched what it waits with, the driver would hold all greenlets up.
    read = subprocess.run([sys.executable, "-c", READ_ADDRESS], capture_output=True, text=True, check=False)
    if read.returncode == MISCONFIGURED:
        _refuse([read.stderr.strip()])


def worker_exit(server: object, worker: Any) -> None:
    """gunicorn calls it in a process that ends: threads left to the interpreter would end in tracebacks."""
    from app.api.services import EXTENSION

    services = getattr(worker.wsgi, "extensions", {}).get(EXTENSION)
    if services is not None:
        services.close()


_host = f"[{_settings.host}]" if _settings.host.count(":") > 1 and _settings.host[0] != "[" else _settings.host
bind = f"{_host}:{_settings.port}"
worker_class = "gevent"
workers = max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2)
worker_connections = 200
keepalive = 75
backlog = 2048
timeout = 60
graceful_timeout = 30
loglevel = "warning"
control_socket_disable = True


def write_problem(client: socket.socket, status: int, reason: str, detail: str) -> None:
    """What gunicorn itself answers, to what is no request: a problem instead of a page."""
    from app.api import problems  # only once gevent has patched what the driver of the database imports

    answer = problems.response(status, detail or reason)
    answer.headers["Connection"] = "close"
    head = f"HTTP/1.1 {answer.status}\r\n{answer.headers}"
    util.write_nonblock(client, head.encode("latin1") + answer.get_data())
