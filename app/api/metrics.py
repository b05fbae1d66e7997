"""/metrics: the whole installation as Prometheus reads it, whichever process answers, and this process's pool."""

from __future__ import annotations

import os

from flask import Blueprint, Response

from app.api.services import current
from app.metrics import CONTENT_TYPE
from app.store import metrics

blueprint = Blueprint("metrics", __name__)


@blueprint.get("/metrics")
def show() -> Response:
    pool = current().pool
    page = pool.run(metrics.read)
    use = pool.use()
    pid = str(os.getpid())
    page.set("pgtick_pool_connections", use["pool_size"] - use["pool_available"], pid, "used")
    page.set("pgtick_pool_connections", use["pool_available"], pid, "idle")
    page.set("pgtick_pool_waiting", use["requests_waiting"], pid)
    return Response(page.text(), content_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})
