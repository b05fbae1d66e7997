"""`python -m workers`: one worker process."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from typing import NoReturn

import uvloop

from app import logs
from app.errors import SettingsError
from app.events import emit
from app.settings import Settings
from app.store.connections import parsed
from workers.process import Worker

GARBAGE = 20_000
"""Objects made before Python looks for cycles among them: a batch of executions, not its 700 by default."""


def main() -> None:
    open_standard_streams()
    try:
        settings = Settings.from_environment()
        parsed(settings.database_url)
        parsed(settings.listen_database_url or None)
    except SettingsError as error:
        give_up(error)
    logs.set_up(settings)
    for variable, rule in settings.unknown():
        emit("setting_unknown", variable=variable, advice=rule)
    gc.set_threshold(GARBAGE)
    sys.path.insert(0, os.getcwd())  # task modules beside the program, as `python -m` would find them
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            status = runner.run(work(settings))
        except SettingsError as error:
            give_up(error)
        # A thread that did not listen to its cancellation must not keep the process: its execution was handed back.
        logs.flush_output()
        os._exit(status)


def open_standard_streams() -> None:
    """Whoever starts this with them closed would have sockets of ours in their places, which children inherit."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


async def work(settings: Settings) -> int:
    return await Worker(settings).run()


def give_up(error: SettingsError) -> NoReturn:
    print(*error.faults, sep="\n", file=sys.stderr)
    sys.exit(os.EX_CONFIG)


if __name__ == "__main__":
    main()
