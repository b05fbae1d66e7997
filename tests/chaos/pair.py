"""A primary and a synchronous streaming standby that change places, each always at its own port."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import psycopg

from app.embedded.cluster import Cluster
from tests.support.processes import free_port
from tests.support.waiting import eventually

SETTINGS = {
    "max_connections": "120",
    "max_wal_size": "1GB",
    "wal_keep_size": "256MB",
    "max_slot_wal_keep_size": "512MB",
    "wal_retrieve_retry_interval": "500ms",  # commits wait for the standby after a restart
}


class Pair:
    """`dsn` names both hosts, so that clients follow; `primary` is where writes go now."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pgtick-chaos-"))
        self.folder.chmod(0o755)
        self.primary = self._temporary = Cluster.temporary(fsync=True, settings=SETTINGS)
        self.standby: Cluster | None = None
        self._standby_port = free_port()
        self._made = 0
        try:
            self.primary._write("port", str(free_port()))
            self.primary.start()
            self._ports = sorted([self.primary.port, self._standby_port])
            self.rebuild()
        except BaseException:
            self.destroy()
            raise

    @property
    def dsn(self) -> str:
        first, second = self._ports
        return (
            f"host=127.0.0.1,127.0.0.1 port={first},{second} user=pgtick password={self.primary.password}"
            " dbname=postgres target_session_attrs=read-write"
        )

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.primary.dsn(), autocommit=True, connect_timeout=5)

    def in_step(self, timeout: float = 60) -> None:
        """Waits until the standby has everything, and has from then on before a commit is acknowledged."""

        def synchronous() -> bool:
            try:
                with self.connect() as connection:
                    query = "select exists (select from pg_stat_replication where sync_state = 'sync')"
                    row = connection.execute(query).fetchone()
                    return bool(row and row[0])
            except psycopg.OperationalError:
                return False

        eventually(synchronous, timeout, interval=0.1)

    def fail_over(self) -> float:
        """Kills the primary and promotes the standby; returns when that accepted writes (monotonic seconds)."""
        self.in_step()
        assert self.standby is not None
        port = self.primary.port
        self.primary.stop("immediate")
        self.standby.promote()
        with psycopg.connect(self.standby.dsn(), autocommit=True) as connection:
            connection.execute("alter system reset synchronous_standby_names")
            connection.execute("select pg_reload_conf()")
        promoted = time.monotonic()
        self._discard(self.primary)
        self.primary, self.standby, self._standby_port = self.standby, None, port
        return promoted

    def rebuild(self) -> None:
        """A new standby, in the place of a primary that was killed."""
        self._made += 1
        slot = f"node_{self._made}"
        standby = Cluster.standby_of(self.primary, self.folder / slot, settings=SETTINGS, slot=slot)
        standby._write("port", str(self._standby_port))
        self.standby = standby.start()
        assert standby.port == self._standby_port
        with self.connect() as connection:
            # Slots of standbys that were discarded would hold back WAL.
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name <> %s", [slot]
            )
            connection.execute("alter system set synchronous_standby_names = '*'")
            connection.execute("select pg_reload_conf()")
        self.in_step()

    def destroy(self) -> None:
        for cluster in dict.fromkeys((self.standby, self.primary, self._temporary)):
            if cluster is not None:
                self._discard(cluster)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _discard(self, cluster: Cluster) -> None:
        if cluster.folder.exists():
            cluster.destroy()
