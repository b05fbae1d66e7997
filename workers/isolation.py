"""Runs one execution in a child process of its own: what kills that process harms nobody else.

The child is `python -m workers.isolated`; it gets the work as JSON on standard input and answers on a pipe of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from app.settings import Settings
from workers.context import Context
from workers.execution import Completed, Execution, Failed, Outcome, storable

KILL_AFTER_S = 2.0
"""A child that was asked to end gets so long before it is killed."""
ANSWER_LIMIT = 16 * 1024 * 1024


async def run(execution: Execution, context: Context, parameters: dict[str, Any], settings: Settings) -> Outcome:
    """Runs the execution in a child process; ends the child when this is cancelled or the timeout passes."""
    facts = _facts(context)
    modules = sorted({*settings.task_modules, execution.task.module})
    request = {
        "modules": modules,
        "context": facts,
        "parameters": parameters,
        "memory_limit_mb": settings.memory_limit_mb,
    }
    answers, answering = os.pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "workers.isolated",
            str(answering),
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=[answering],
        )
    except BaseException:
        os.close(answers)
        raise
    finally:
        os.close(answering)
    try:
        async with asyncio.timeout(execution.timeout) as limit:
            answer = await _converse(child, answers, json.dumps(request).encode())
            await child.wait()
    except TimeoutError:
        if not limit.expired():
            raise
        await _end(child)
        return Failed(f"timed out after {execution.timeout:g} s; its process was ended")
    except BaseException:
        await _end(child)
        raise
    return _outcome(child.returncode or 0, answer)


def _facts(context: Context) -> dict[str, Any]:
    return {name: getattr(context, name) for name in Context.__dataclass_fields__ if name != "cancelled"}


async def _converse(child: asyncio.subprocess.Process, answers: int, request: bytes) -> bytes:
    reader = asyncio.StreamReader(limit=ANSWER_LIMIT)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(answers, "rb")
    )
    try:
        assert child.stdin is not None
        child.stdin.write(request)
        try:
            await child.stdin.drain()
            child.stdin.close()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it died before it read; its exit status tells
        return await reader.read(-1)
    finally:
        transport.close()


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    try:
        child.terminate()
        async with asyncio.timeout(KILL_AFTER_S):
            await child.wait()
    except ProcessLookupError:
        pass
    except TimeoutError:
        child.kill()
        await child.wait()


def _outcome(status: int, answer: bytes) -> Outcome:
    if status < 0:
        return Failed(f"process died, signal {-status} ({signal.Signals(-status).name})")
    try:
        said = json.loads(answer)
    except ValueError:
        return Failed(f"process died, exit status {status}, without an answer")
    if "error" in said:
        return Failed(storable(said["error"]), final=said.get("final", False), trace=said.get("trace"))
    return Completed(said["result"])
