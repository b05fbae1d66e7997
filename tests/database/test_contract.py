"""The API does what its own description says: schemathesis asks it whatever that allows, and what it does not.

PGTICK_TEST_CONTRACT is how many examples there are for each operation: 15 in the short run of every day.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.api import Api, Rows, served

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("PGTICK_TEST_CONTRACT", "15"))
PHASES = "coverage" if EXAMPLES <= 15 else "coverage,fuzzing,stateful"
CONFIG = """
[checks.positive_data_acceptance]
# There are more rules than a schema can tell: of cron, of what exists, of what is over.
expected-statuses = ["2xx", "400", "401", "403", "404", "409", "422"]
[parameters]
"path.job_id" = "{job}"
"path.execution_id" = "{execution}"
"path.operation_id" = "{operation}"
"""


@pytest.mark.timeout(3600)
def test_nothing_that_the_description_allows_or_forbids_is_answered_otherwise(
    api: Api, connection: psycopg.Connection, tmp_path: Path
) -> None:
    rows = Rows(connection)
    job = rows.job(expression="*/5 * * * *")
    rows.standing(job, 4000)
    rows.finished(job, 0, "FAILED", error="boom")
    [execution] = [item["execution_id"] for item in api.get("/executions")["executions"] if item["status"] == "FAILED"]
    asked = {"action": "rerun", "filter": {"user_id": "nobody"}}
    operation = api.call("POST", "/operations", json=asked).json["operation_id"]  # type: ignore[index]
    (tmp_path / "schemathesis.toml").write_text(CONFIG.format(job=job, execution=execution, operation=operation))
    with served(api.app) as address:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json"),
                *("--checks=all", f"--phases={PHASES}", f"--max-examples={EXAMPLES}", "--continue-on-failure"),
                # What was cancelled or stopped is still there to be looked at.
                *("--exclude-checks=use_after_free", "--warnings=off", "--no-color", f"--seed={EXAMPLES}"),
            ],
            cwd=tmp_path,
            env=os.environ | {"NO_PROXY": "127.0.0.1"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    print(done.stdout[-20_000:])
    assert done.returncode == 0
    asked_for = re.search(r"(\d+) generated", done.stdout)
    assert asked_for is not None
    assert int(asked_for[1]) > 500
