"""The chaos suite in short: some faults, and nothing lost, stuck, early or run twice without a visible loss."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.databases import CHECKOUT

pytestmark = pytest.mark.slow


def test_a_short_chaos_breaks_no_invariant() -> None:
    # How long recovery takes is for `make chaos` on a quiet machine to say.
    brief = ["--minutes", "0.3", "--rate", "40", "--pause", "3", "--patience", "20", "--seed", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *brief],
        cwd=CHECKOUT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Every invariant holds" in done.stdout
