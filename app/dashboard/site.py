"""Puts the dashboard on an application that already has the API."""

from __future__ import annotations

from importlib import import_module

from flask import Flask

from app.dashboard.blueprint import blueprint

PAGES = ("overview", "executions", "job_form", "jobs", "schedules", "tasks", "workers", "database", "login")
"""Modules that hang their routes on the blueprint when they are imported."""

for _name in PAGES:
    import_module(f"app.dashboard.pages.{_name}")


def install(app: Flask) -> None:
    app.register_blueprint(blueprint)
