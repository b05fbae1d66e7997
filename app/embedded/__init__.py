"""PostgreSQL without installing PostgreSQL: finds its programs and runs a cluster of its own from a folder.

Used by `make run`, the tests, the benchmark and the chaos suite. The server listens on 127.0.0.1 only and asks for a
password (random, kept in the cluster's folder), because on a shared machine everyone can reach the loopback interface.
PostgreSQL refuses to run as root, so root runs it as another, existing OS user; nobody's permissions are changed for
that: what the other user cannot read is copied, and what it must write is kept, under /var/lib.
"""

from __future__ import annotations

from app.errors import PgtickError


class ClusterError(PgtickError):
    """The embedded PostgreSQL cannot do what was asked; the message says why and what would help."""
