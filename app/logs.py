"""How events become log lines: `key=value` text for people and journald, or JSON for collectors."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from app.clock import in_utc
from app.settings import Settings


class TextFormatter(logging.Formatter):
    """`2026-11-30T08:00:00.123Z info worker_started worker_id=3`, one line per event; a traceback follows indented."""

    def format(self, record: logging.LogRecord) -> str:
        facts = getattr(record, "facts", {})
        words = [_time(record), record.levelname.lower(), record.getMessage()]
        words += [f"{name}={_value(value)}" for name, value in facts.items()]
        line = " ".join(words)
        if record.exc_info and record.exc_info[0]:
            line += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: at, level, event, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {"at": _time(record), "level": record.levelname.lower(), "event": record.getMessage()}
        entry |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[0]:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def set_up(settings: Settings) -> None:
    """Sends the events of this process, and what tasks and libraries log, to standard error in the chosen format.

    Logging never raises: a line that cannot be written is lost, and whoever wanted to write it goes on.
    """
    logging.raiseExceptions = False
    handler = logging.StreamHandler(_own_stderr())
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)


def flush_output() -> None:
    """Writes out what was printed, for a process that ends by `os._exit`."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a task has closed it, or nobody reads any more
            stream.flush()


def _own_stderr() -> TextIO:
    """Standard error by a descriptor of our own, so that a task that closes sys.stderr closes nobody else's."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError, AttributeError):
        return sys.stderr


def _time(record: logging.LogRecord) -> str:
    return in_utc(datetime.fromtimestamp(record.created, UTC), "milliseconds")


def _value(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n\t') else text
