"""API and dashboard over HTTP, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

from app.api.application import create_app
from app.api.services import EXTENSION
from app.dashboard import site
from app.settings import Settings


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@contextmanager
def serving(dsn: str, **settings: Any) -> Iterator[str]:
    """The address of an application with these settings."""
    app = create_app(Settings(database_url=dsn, **settings))
    site.install(app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        app.extensions[EXTENSION].close()
