"""The child process of `workers.isolation`: runs one execution and answers what came of it."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import json
import os
import resource
import signal
import sys
from typing import Any

from workers.context import Context, enter
from workers.execution import encode_result, failure
from workers.registry import load

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ends this process when the worker dies, so that a lost execution does not go on unseen (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    if limit := request["memory_limit_mb"]:
        resource.setrlimit(resource.RLIMIT_AS, (limit * 1024 * 1024, limit * 1024 * 1024))
    context = Context(**request["context"])
    try:
        function = load(request["modules"])[context.task_id].function
        enter(context)
        result = function(**request["parameters"])
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return {"result": encode_result(result)}
    except MemoryError:
        return {"error": f"MemoryError: more than the memory limit of {limit} MiB"}
    except BaseException as error:
        outcome = failure(error)
        return {"error": outcome.error, "trace": outcome.trace}


def main() -> None:
    answering, parent = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(answering, False)
    die_with(parent)
    request = json.loads(sys.stdin.buffer.read())
    answer = json.dumps(answer_to(request)).encode()
    with os.fdopen(answering, "wb") as pipe:
        pipe.write(answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
