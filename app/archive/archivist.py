"""Takes partitions that are past retention out of the database, into the archive if there is one."""

from __future__ import annotations

import os
import socket
import threading
from datetime import timedelta

import psycopg

from app.archive.files import Archive, Connection, file_of
from app.events import emit
from app.settings import Settings
from app.store.connections import connect

BATCH = 20
"""Partitions taken out in one round."""


class Archivist:
    """Sums up old statistics; takes out what is past retention, archives it if there is an archive, and drops it."""

    def __init__(self, settings: Settings, stopping: threading.Event | None = None) -> None:
        self._settings = settings
        self._archive = Archive(settings.archive) if settings.archive else None
        self._stopping = stopping or threading.Event()
        # One name per process: two of one host must not write the same file.
        self._claimant = f"{socket.gethostname()}:{os.getpid()}"

    def run(self) -> int:
        """Does all there is to do; returns how many partitions are gone. Errors of the database are the caller's."""
        with connect(self._settings.database_url, application_name="pgtick archive") as connection:
            self._roll_up(connection)
            self._take_out(connection)
            dropped = 0
            while not self._stopping.is_set():
                row = connection.execute("select pgtick.claim_past(%s)", [self._claimant]).fetchone()
                if row is None or row[0] is None:
                    break
                dropped += self._retire(connection, row[0])
            return dropped

    def _roll_up(self, connection: Connection) -> None:
        while not self._stopping.is_set():
            rolled_up = connection.execute("select pgtick.roll_up_stats()").fetchone()
            if rolled_up is None or rolled_up[0] == 0:
                break

    def _take_out(self, connection: Connection) -> None:
        """Detaches partitions past retention; one whose lock is not free is left for the next round."""
        before = timedelta(days=self._settings.retention_days)
        expired = connection.execute(
            "select partition from pgtick.partitions where parent = 'finished_executions' and until_at < now() - %s"
            " order by until_at limit %s",
            [before, BATCH],
        ).fetchall()
        try:
            for (partition,) in expired:
                if self._stopping.is_set():
                    return
                connection.execute("select pgtick.detach_partition(%s)", [partition])
            for _ in range(BATCH):
                retired = connection.execute("select pgtick.retire_jobs(now() - %s)", [before]).fetchone()
                if retired is None or retired[0] is None:
                    break
                connection.execute("select pgtick.sweep_standing(%s)", retired)
        except psycopg.errors.LockNotAvailable as error:
            emit("partitions_wait", error=error)

    def _retire(self, connection: Connection, name: str) -> int:
        row = connection.execute(
            "select parent, from_at, until_at, rows, written_at is not null,"
            " to_regclass(format('pgtick.%%I', name)) is null from pgtick.archives where name = %s",
            [name],
        ).fetchone()
        assert row is not None
        parent, from_at, until_at, rows, written, gone = row
        if self._archive is not None and not written and not gone:
            renew = "update pgtick.archives set claimed_until = now() + interval '5 minutes' where name = %s"

            def on_chunk() -> None:
                if self._stopping.is_set():
                    raise _Stopped
                connection.execute(renew, [name])

            try:
                manifest = self._archive.write(connection, name, parent, from_at, until_at, on_chunk)
            except _Stopped:
                return 0
            file, place = file_of(parent, name), self._archive.place
            size = place.size(file)
            connection.execute(
                "update pgtick.archives set rows = %s, bytes = %s, sha256 = %s, location = %s, written_at = now()"
                " where name = %s",
                [manifest.rows, size, manifest.sha256, place.address(file), name],
            )
            emit("partition_archived", partition=name, rows=manifest.rows, bytes=size)
            rows = manifest.rows
        connection.execute("select pgtick.drop_past(%s, %s)", [name, rows])
        emit("partition_dropped", partition=name)
        return 1


class _Stopped(Exception):
    """The process is to end; what was begun is begun again another time."""
