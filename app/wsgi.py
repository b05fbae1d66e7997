"""What gunicorn serves: `gunicorn -c python:app.gunicorn_conf app.wsgi:app`."""

from __future__ import annotations

from app import logs
from app.api.application import create_app
from app.dashboard import site
from app.settings import Settings

settings = Settings.from_environment()
logs.set_up(settings)
app = create_app(settings)
site.install(app)
