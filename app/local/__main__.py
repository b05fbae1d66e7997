"""`python -m app.local run`, and what else `make` asks for."""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # what follows takes a second to load: Ctrl-C ends that at once

import argparse
import logging
import sys

import psycopg
from sqlalchemy.exc import DBAPIError

from app import local, logs
from app.errors import PgtickError
from app.local.database import url, wipe
from app.local.programs import psql, shell
from app.local.run import Local
from app.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.local", description=local.__doc__)
    parser.add_argument("command", choices=("run", "psql", "shell", "url", "wipe"), nargs="?", default="run")
    command = parser.parse_args().command
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        settings = Settings.from_environment()
        logs.set_up(settings)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        commands = {"run": Local(settings).run, "psql": psql, "shell": shell, "url": url, "wipe": wipe}
        commands[command]()
    except (PgtickError, psycopg.Error) as error:
        sys.exit(f"error: {error}")
    except DBAPIError as error:
        sys.exit(f"error: {error.orig}")
    except KeyboardInterrupt:
        sys.exit(130)


main()
