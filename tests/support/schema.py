"""The schema as SQL, for people to read and for a test to compare: `make schema` writes it to migrations/schema.sql."""

from __future__ import annotations

import re
import subprocess

from app.embedded.programs import find_bindir
from tests.support.databases import CHECKOUT, migrate, running_server

SCHEMA_FILE = CHECKOUT / "migrations" / "schema.sql"
PARTITIONS = r"pgtick.*_2[0-9][0-9][0-9][0-9][0-9][0-9][0-9]_[0-9][0-9][0-9][0-9]"


def schema_of(dsn: str) -> str:
    """What pg_dump says of the schema pgtick, without partitions, session settings and the names of versions."""
    options = ["--schema-only", "--schema=pgtick", "--no-owner", "--no-privileges", f"--exclude-table={PARTITIONS}"]
    command = [str(find_bindir() / "pg_dump"), *options, f"--dbname={dsn}"]
    dump = subprocess.run(command, text=True, capture_output=True, check=False)
    assert dump.returncode == 0, dump.stderr
    noise = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)\n", re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", noise.sub("", dump.stdout)).strip() + "\n"


if __name__ == "__main__":
    with running_server() as server, server.database() as dsn:
        migrate(dsn)
        SCHEMA_FILE.write_text(schema_of(dsn))
    print(f"wrote {SCHEMA_FILE.relative_to(CHECKOUT)}")
