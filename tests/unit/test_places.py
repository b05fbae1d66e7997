"""Places of an archive: a file is there whole or not at all, in a folder as in an object store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from app.archive.places import BLOCK, Folder, Place, PlaceError, Store, place
from tests.support.databases import CHECKOUT
from tests.support.object_store import s3_bucket


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as url:
        yield url


@pytest.fixture(params=["folder", "s3", "memory"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A path or URL where nothing is."""
    if request.param == "folder":
        return str(tmp_path / "archive" / "new")
    return f"{request.getfixturevalue('bucket') if request.param == 's3' else 'memory:/'}/a prefix/{uuid4()}"


@pytest.fixture
def there(where: str) -> Place:
    return place(where)


def write(there: Place, name: str, data: bytes) -> None:
    with there.writing(name) as file:
        file.write(data)


def test_what_was_written_is_read(there: Place, where: str) -> None:
    assert there.contents(".json") == []
    large = bytes(range(256)) * (2 * BLOCK // 256) + b"and some more"
    write(there, "jobs/a.csv.gz", large)
    write(there, "jobs/a.json", b"{}")
    write(there, "jobs/a.json", b'{"again": 1}')
    write(there, "other/b.json", b"[]")
    with there.open("jobs/a.csv.gz") as file:
        assert file.read() == large
    assert there.size("jobs/a.csv.gz") == len(large)
    # Also for somebody else, and once more for who has looked before.
    assert sorted(place(where).contents(".json")) == sorted(there.contents(".json")) == [b"[]", b'{"again": 1}']
    write(place(where), "jobs/c.json", b"1")
    assert len(there.contents(".json")) == 3


@pytest.mark.parametrize("size", [1, 2 * BLOCK], ids=["small", "large"])
def test_what_was_broken_off_is_not_there(there: Place, size: int) -> None:
    with pytest.raises(ZeroDivisionError), there.writing("jobs/a.json") as file:  # noqa: PT012 (nothing else raises it)
        file.write(b"x" * size)
        raise ZeroDivisionError
    assert there.contents(".json") == []
    with pytest.raises(FileNotFoundError):
        there.open("jobs/a.json")
    # Nor does it change what was there before, or stand in the way of another try.
    write(there, "jobs/a.json", b"first")
    with pytest.raises(ZeroDivisionError), there.writing("jobs/a.json") as file:  # noqa: PT012
        file.write(b"x" * size)
        raise ZeroDivisionError
    assert there.contents(".json") == [b"first"]
    write(there, "jobs/a.json", b"second")
    assert there.contents(".json") == [b"second"]


@pytest.mark.parametrize("size", [1, 2 * BLOCK], ids=["small", "large"])
def test_what_is_being_written_is_not_there_yet(there: Place, size: int) -> None:
    with there.writing("jobs/a.json") as file:
        file.write(b"x" * size)
        assert there.contents(".json") == []
    assert there.contents(".json") == [b"x" * size]


def test_paths_are_folders_and_urls_are_not(tmp_path: Path, bucket: str) -> None:
    for path in (str(tmp_path), f"file://{tmp_path}", "relative/s3:"):
        assert isinstance(place(path), Folder), path
    there = place(f"{bucket}/some/where/")
    assert isinstance(there, Store)
    assert str(there) == f"{bucket}/some/where"
    assert there.address("jobs/a.json") == f"{bucket}/some/where/jobs/a.json"
    assert place(str(tmp_path)).address("jobs/a.json").endswith(f":{tmp_path}/jobs/a.json")


@pytest.mark.parametrize("missing", ["fsspec", "s3fs"])
def test_what_is_not_installed_is_named_with_its_extra(missing: str) -> None:
    # In a process of its own: here both have been imported.
    program = f"""
import sys
sys.modules[{missing!r}] = None
from app.archive.places import PlaceError, place
try:
    place("s3://bucket/prefix")
except PlaceError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    assert told.startswith("s3://bucket/prefix needs ")
    assert told.endswith(": pip install 'pgtick[s3]'\n")


def test_an_unknown_scheme_is_an_error_of_its_own() -> None:
    with pytest.raises(PlaceError, match=r"^nowhere://x: .*nowhere"):
        place("nowhere://x")
