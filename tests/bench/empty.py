"""An empty Flask JSON endpoint: what posting a job is compared with, under the same gunicorn and the same load."""

from __future__ import annotations

from typing import Any

from flask import Flask, request

app = Flask(__name__)


@app.post("/jobs")
def answer() -> tuple[dict[str, Any], int]:
    return {"task_id": request.get_json()["task_id"]}, 201


@app.get("/healthz")
def healthz() -> dict[str, str]:
    return {"status": "ok"}
