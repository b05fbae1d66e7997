"""How gunicorn serves the API: `gunicorn -c python:app.gunicorn_conf app.wsgi:app`.

Requests mostly wait: for a commit that they share, or for a page. As greenlets they do that at a third of the cost of
threads, which would fight for the interpreter. One process per core does the Python work.
"""

from __future__ import annotations

import os

from app.settings import Settings

_settings = Settings.from_environment()

bind = f"{_settings.host}:{_settings.port}"
worker_class = "gevent"
workers = max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2)
worker_connections = 200
keepalive = 75
backlog = 2048
timeout = 60
graceful_timeout = 30
loglevel = "warning"
control_socket_disable = True
