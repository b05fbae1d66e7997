"""Where files of the archive are kept: a folder of this machine, or an object store that fsspec reaches, such as S3.

In both a file is there whole or not at all, and one that was written stays. Names are paths within the place, with
slashes: `jobs/past.json`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from app.errors import PgtickError

BLOCK = 16 << 20
"""Bytes that are sent to an object store at once, and held in memory until then. S3 takes 10,000 of them: 160 GB."""


class PlaceError(PgtickError):
    """A place that nothing here can reach."""


class Place(Protocol):
    """What an archive needs of where it is."""

    def contents(self, suffix: str) -> list[bytes]:
        """Of all files whose names end so: small ones, for they are read at once."""

    def open(self, name: str) -> BinaryIO:
        """A file to be read; FileNotFoundError when there is none."""

    def writing(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file to be written. It is there, durably, once the block ends; when the block raises, it is not."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def address(self, name: str) -> str:
        """Where somebody else finds a file."""


def place(where: str) -> Place:
    """A path is a folder, a URL what fsspec makes of it. Raises PlaceError when that needs what is not installed."""
    scheme, separator, rest = where.partition("://")
    if not separator:
        return Folder(where)
    return Folder(rest) if scheme in ("file", "local") else Store(where)


class Folder:
    """Files on a disk of this machine: they are called `.part` until they are on it."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def __str__(self) -> str:
        return str(self._path)

    def contents(self, suffix: str) -> list[bytes]:
        return [path.read_bytes() for path in self._path.glob(f"*/*{suffix}")]

    def open(self, name: str) -> BinaryIO:
        return (self._path / name).open("rb")

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        path = self._path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        # The folder may be as new as the file.
        for folder in (path.parent, self._path):
            _sync(folder)

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    def address(self, name: str) -> str:
        return f"{socket.gethostname()}:{(self._path / name).absolute()}"


class Store:
    """Objects behind a URL. What is sent of a file appears with the last piece, in one step."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs

            # Others write there, too: nothing is to be remembered. An instance of its own, for transactions are its.
            self._files, self._root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            raise PlaceError(f"{url} needs what is not installed ({error}): pip install 'pgtick[s3]'") from None
        except ValueError as error:
            raise PlaceError(f"{url}: {error}") from None

    def __str__(self) -> str:
        return self.address("")

    def contents(self, suffix: str) -> list[bytes]:
        keys = self._files.glob(self._key(f"*/*{suffix}"))
        # Many at once, and without asking first whether each is there.
        return list(self._files.cat_ranges(keys, None, None, on_error="raise"))

    def open(self, name: str) -> BinaryIO:
        file: BinaryIO = self._files.open(self._key(name), "rb", block_size=BLOCK)
        return file

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        # Without the transaction, a file that is closed by an error would appear as if it were whole.
        with self._files.transaction, self._files.open(self._key(name), "wb", block_size=BLOCK) as file:
            yield file

    def size(self, name: str) -> int:
        return int(self._files.size(self._key(name)))

    def address(self, name: str) -> str:
        return str(self._files.unstrip_protocol(self._key(name)))

    def _key(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}".rstrip("/")


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
