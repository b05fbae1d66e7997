"""/healthz: whether jobs can be posted, how many workers are alive, and what the janitor found."""

from __future__ import annotations

from flask import Blueprint, Response

from app.api import responses
from app.api.services import current
from app.store import health

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def show() -> Response:
    # Without a database this ends in 503 as everything does.
    found = current().pool.run(health.read)
    body = {
        "status": "ok",
        "database": "ok",
        "workers": found.workers,
        # Whoever asks without a token learns that it works, and no more.
        "findings": []
        if current().settings.tokens
        else [
            {
                "kind": finding["kind"],
                "subject": finding["subject"],
                "sentence": finding["sentence"],
                "found_at": responses.rfc3339(finding["found_at"]),
            }
            for finding in found.findings
        ],
    }
    return responses.answer(body, 200, {"Cache-Control": "no-store"})
