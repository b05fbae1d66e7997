"""Says which PostgreSQL is used here."""

from __future__ import annotations

from app.embedded.account import Account
from app.embedded.programs import find_bindir, major_version

programs = find_bindir()
print(f"PostgreSQL {major_version(programs, Account.for_server())} from {programs}")
