"""`python -m tests.bench [SCENARIO …]`: measures on this machine; without a scenario, all of them.

RATE (jobs a second, or jobs where there is no rate) and SECONDS change the size; QUICK=1 only shows that it works.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.bench.lab import BenchError, bench
from tests.bench.scenarios import SCENARIOS, Size


class Progress:
    """One line that changes, on a terminal; elsewhere a line now and then."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        line = f"[{now - self._started:5.1f} s] {text}"
        if sys.stderr.isatty():
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        elif now - self._shown >= 5:
            self._shown = now
            print(line, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    names = parser.parse_args().scenarios or list(SCENARIOS)
    if unknown := set(names) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    environment = os.environ
    size = Size(
        rate=int(environment["RATE"]) if environment.get("RATE") else None,
        seconds=float(environment["SECONDS"]) if environment.get("SECONDS") else None,
        quick=environment.get("QUICK", "") not in ("", "0"),
    )
    progress = Progress()
    try:
        with bench(progress) as each:
            for name in names:
                progress(name)
                result = SCENARIOS[name](each, size)
                result.write()
                progress.clear()
                print(f"{name}: {(SCENARIOS[name].__doc__ or '').strip()}\n{result.table()}\n", flush=True)
    except BenchError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
