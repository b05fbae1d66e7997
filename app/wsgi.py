"""What gunicorn serves: `gunicorn -c python:app.gunicorn_conf app.wsgi:app`."""

from __future__ import annotations

import sys

from app import logs
from app.api.application import create_app
from app.dashboard import site
from app.errors import SettingsError
from app.settings import Settings

settings = Settings.from_environment()
logs.set_up(settings)
try:
    app = create_app(settings)
except SettingsError as error:
    sys.exit("\n".join(error.faults))
site.install(app)
