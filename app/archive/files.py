"""Files of the archive and their manifests: writing one from a partition, reading, comparing and restoring it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from app.archive.places import place
from app.clock import in_utc
from app.errors import PgtickError

Connection = psycopg.Connection[Any]

CHUNK_BLOCKS = 4096
"""Blocks of 8 kB read by one statement: snapshots stay short, so that VACUUM is not held up."""
LEVEL = 4


class ArchiveError(PgtickError):
    """A file of the archive that is not what it should be."""


@dataclass(frozen=True)
class Manifest:
    """What a file of the archive holds; `sha256` is of its uncompressed text, a CSV with a header line."""

    name: str
    parent: str
    from_at: str
    until_at: str
    rows: int
    sha256: str

    def covers(self, since: datetime | None, until: datetime | None) -> bool:
        return (until is None or datetime.fromisoformat(self.from_at) < until) and (
            since is None or datetime.fromisoformat(self.until_at) > since
        )


class Archive:
    """Archived partitions in a folder or under a URL: parent/name.csv.gz and parent/name.json.

    A file counts for nothing until its manifest is there.
    """

    def __init__(self, where: str) -> None:
        self.place = place(where)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def manifests(self) -> list[Manifest]:
        """All complete files, oldest first."""
        found = [Manifest(**json.loads(text)) for text in self.place.contents(".json")]
        return sorted(found, key=lambda manifest: (manifest.parent, manifest.from_at, manifest.name))

    def manifest(self, name: str) -> Manifest:
        for manifest in self.manifests():
            if manifest.name == name:
                return manifest
        raise ArchiveError(f"there is no {name!r} in the archive {self.place}")

    def rows(self, manifest: Manifest) -> Iterator[dict[str, str]]:
        """The rows of one file, as text; what was null is empty."""
        with self._open(manifest) as file:
            yield from csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))

    def query(
        self, parent: str, *, since: datetime | None = None, until: datetime | None = None, **wanted: str
    ) -> Iterator[dict[str, str]]:
        """Rows whose columns equal what is wanted, from the files that may hold [since, until)."""
        for manifest in self.manifests():
            if manifest.parent != parent or not manifest.covers(since, until):
                continue
            for row in self.rows(manifest):
                if all(row.get(column) == value for column, value in wanted.items()) and _within(row, since, until):
                    yield row

    def check(self, manifest: Manifest) -> None:
        """Reads the file and compares it with its manifest; raises ArchiveError when they differ."""
        digest = hashlib.sha256()
        with self._open(manifest) as file:
            # Rows are counted by reading the CSV, for a field may hold line ends.
            lines = io.TextIOWrapper(io.BufferedReader(_Hashing(file, digest), 1 << 18), encoding="utf-8", newline="")
            rows = sum(1 for _ in csv.reader(lines)) - 1
        if (rows, digest.hexdigest()) != (manifest.rows, manifest.sha256):
            raise ArchiveError(f"{manifest.name} in {self.place} does not hold what was written to it")

    def restore(self, connection: Connection, name: str, schema: str = "pgtick_archive") -> int:
        """Makes the table `schema.name` with the rows of that file, none or all. Returns how many."""
        manifest = self.manifest(name)
        self.check(manifest)
        table = sql.Identifier(schema, name)
        with connection.transaction(), self._open(manifest) as file:
            connection.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
            connection.execute(
                sql.SQL("create table {} (like {})").format(table, sql.Identifier("pgtick", manifest.parent))
            )
            columns = next(csv.reader([file.readline().decode()]))
            statement = sql.SQL("copy {} ({}) from stdin (format csv)").format(
                table, sql.SQL(", ").join(map(sql.Identifier, columns))
            )
            with connection.cursor() as cursor:
                with cursor.copy(statement) as copy:
                    while data := file.read(1 << 18):
                        copy.write(data)
                if cursor.rowcount != manifest.rows:
                    raise ArchiveError(f"{name}: {cursor.rowcount} of {manifest.rows} rows were restored")
        return manifest.rows

    @contextmanager
    def _open(self, manifest: Manifest) -> Iterator[gzip.GzipFile]:
        with self.place.open(file_of(manifest.parent, manifest.name)) as raw, gzip.GzipFile(fileobj=raw) as file:
            yield file

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, connection: Connection, name: str, parent: str, from_at: datetime, until_at: datetime,
              on_chunk: Callable[[], None]) -> Manifest:  # fmt: skip
        """Writes the table pgtick.`name`, durably, and compares what was written with what came."""
        digest = hashlib.sha256()
        with (
            self.place.writing(file_of(parent, name)) as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=LEVEL, filename="", mtime=0) as file,
        ):
            for data in _read(connection, name, on_chunk):
                digest.update(data)
                file.write(data)
        rows = _count(connection, name)
        manifest = Manifest(name, parent, in_utc(from_at), in_utc(until_at), rows, digest.hexdigest())
        self.check(manifest)
        with self.place.writing(f"{parent}/{name}.json") as raw:
            raw.write(json.dumps(asdict(manifest), indent=1).encode())
        return manifest


def file_of(parent: str, name: str) -> str:
    """The file of a partition, within the place of the archive."""
    return f"{parent}/{name}.csv.gz"


class _Hashing(io.RawIOBase):
    """Reads through and adds what is read to a digest."""

    def __init__(self, file: Any, digest: Any) -> None:
        self._file = file
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: bytes = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._digest.update(data)
        return len(data)


def _read(connection: Connection, name: str, on_chunk: Callable[[], None]) -> Iterator[bytes]:
    """The table as CSV, some blocks at a time."""
    row = connection.execute(
        "select pg_relation_size(format('pgtick.%%I', %s::text)::regclass) / current_setting('block_size')::int", [name]
    ).fetchone()
    assert row is not None
    options = sql.SQL("format csv, header true")
    for first in range(0, max(row[0], 1), CHUNK_BLOCKS):
        on_chunk()
        # Nobody writes to a table that was detached, so its blocks can be read one after the other.
        statement = sql.SQL("copy (select * from {} where ctid >= {}::tid and ctid < {}::tid) to stdout ({})").format(
            sql.Identifier("pgtick", name),
            sql.Literal(f"({first},0)"),
            sql.Literal(f"({first + CHUNK_BLOCKS},0)"),
            options,
        )
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            yield from map(bytes, copy)
        options = sql.SQL("format csv")


def _count(connection: Connection, name: str) -> int:
    row = connection.execute(sql.SQL("select count(*) from {}").format(sql.Identifier("pgtick", name))).fetchone()
    assert row is not None
    return int(row[0])


def _within(row: dict[str, str], since: datetime | None, until: datetime | None) -> bool:
    text = row.get("scheduled_at") or row["created_at"]
    # PostgreSQL writes +00, which Python reads from 3.11 on.
    at = datetime.fromisoformat(text)
    return (since is None or at >= since) and (until is None or at < until)
