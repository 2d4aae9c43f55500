"""Files beside objects: a digest decides where it is one, and the object itself where not."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perago.errors import ProjectionError
from perago.protocol.workspace import WorkspaceInput
from perago.transfer import downloading
from perago.transfer.cache import ObjectCache
from perago.transfer.comparing import Suspect, changed_files, hashed, opened
from perago.transfer.engine import Engine
from perago.transfer.inventory import RemoteObject
from perago.transfer.workspaces import LocalWorkspace, LocalWorkspaces
from support.executions import an_execution

CONTENT = b"content" * 1000
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
# Of the form of a digest, as the checksum of an object that another tool sent in its own parts.
TOKEN = "0" * 32
GIVEN = WorkspaceInput(repository="repo", branch="main", ref_type="commit", ref="a" * 64)


class Store:
    """A store with one object, `key`, which counts how often that is read."""

    def __init__(self, checksum: str = MD5, pieces: int = 1) -> None:
        self.item = RemoteObject("key", len(CONTENT), checksum=checksum, address="place")
        self.reads = 0
        self.pieces_read = 0
        self._piece = len(CONTENT) // pieces

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        yield self.item

    def read_many(self, *_: object) -> Iterator[tuple[RemoteObject, memoryview]]:
        """Nothing: the object is large."""
        return iter(())

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        assert (repository, ref, key, size) == ("repo", GIVEN.ref, "key", len(CONTENT))
        self.reads += 1
        for first in range(start, size, self._piece):
            self.pieces_read += 1
            yield memoryview(CONTENT)[first : first + self._piece]

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        """Leave all of it out."""
        return iter(())


def changed(store: Any, folder: Path, digest: str, *, is_hashed: bool) -> bool:
    suspect = Suspect("file", "key", len(CONTENT), digest, is_hashed)
    found = changed_files(store, "repo", GIVEN.ref, folder, [suspect], 4)
    assert found <= {"file"}
    return bool(found)


@pytest.mark.parametrize(
    ("content", "digest", "is_hashed", "differs", "reads"),
    [
        (CONTENT, MD5, True, False, 0),
        (CONTENT, MD5, False, False, 0),
        (CONTENT, TOKEN, False, False, 1),
        (CONTENT[::-1], MD5, True, True, 0),
        (CONTENT[::-1], MD5, False, True, 1),
        (CONTENT[::-1], TOKEN, False, True, 1),
        (CONTENT + b"more", TOKEN, False, True, 0),
        (CONTENT[1:], TOKEN, False, True, 0),
    ],
)
def test_the_object_is_read_where_a_digest_does_not_decide(
    tmp_path: Path, content: bytes, digest: str, is_hashed: bool, differs: bool, reads: int
) -> None:
    (tmp_path / "file").write_bytes(content)
    store = Store()
    assert changed(store, tmp_path, digest, is_hashed=is_hashed) is differs
    assert store.reads == reads


def test_an_object_is_read_up_to_the_first_difference(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT[:1000] + b"!" + CONTENT[1001:])
    store = Store(pieces=7)
    assert changed(store, tmp_path, TOKEN, is_hashed=False)
    assert store.pieces_read == 2


def test_the_hash_is_the_md5_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"hello")
    with opened(tmp_path / "f") as file:
        assert hashed(file) == "5d41402abc4b2a76b9719d911017c592"


def test_a_pipe_or_link_in_the_place_of_a_file_is_not_waited_for_and_not_followed(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ProjectionError, match="no longer a file"):
        opened(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="symbolic link"):
        opened(tmp_path / "link")


@pytest.fixture
def every_object_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "PIECE", 0)
    monkeypatch.setattr(downloading, "LARGEST_HASHED", 0)


@contextmanager
def fetched(store: Any, root: Path, cache: ObjectCache | None = None) -> Iterator[LocalWorkspace]:
    with LocalWorkspaces(root, Engine(store, 4, cache)).open(an_execution()) as workspace:
        workspace.fetch(GIVEN, "")
        yield workspace


@pytest.mark.usefixtures("every_object_is_large")
@pytest.mark.parametrize("checksum", [MD5, TOKEN], ids=["digest", "token"])
class TestLargeFiles:
    """What is not hashed while it is downloaded."""

    def test_that_nobody_touched_is_unchanged_without_being_read(
        self, tmp_path: Path, checksum: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("perago.transfer.comparing.hashed", pytest.fail)
        store = Store(checksum)
        with fetched(store, tmp_path) as workspace:
            plan = workspace.changes()
        assert (plan.collect().unchanged, store.reads) == (1, 1)

    def test_that_the_body_changed_at_once_is_changed(self, tmp_path: Path, checksum: str) -> None:
        """Within the tick of the clock in which the download ended, if there was no wait."""
        store = Store(checksum)
        with fetched(store, tmp_path) as workspace:
            times = (workspace.data / "key").stat()
            with (workspace.data / "key").open("r+b") as file:
                file.write(b"!")
            os.utime(workspace.data / "key", ns=(times.st_atime_ns, times.st_mtime_ns))
            plan = workspace.changes()
        assert [upload.path for upload in plan.collect().uploads] == ["key"]

    def test_that_the_body_wrote_again_as_it_was_is_unchanged(
        self, tmp_path: Path, checksum: str
    ) -> None:
        store = Store(checksum)
        with fetched(store, tmp_path) as workspace:
            (workspace.data / "key").write_bytes(CONTENT)
            plan = workspace.changes()
        assert not plan
        assert store.reads == (1 if checksum == MD5 else 2)

    def test_comes_from_the_cache_the_next_time(
        self, tmp_path: Path, checksum: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If its checksum is none, the cache finds that out, and has it hashed the second time."""
        monkeypatch.setattr("perago.transfer.cache.LARGEST_PACKED", 0)
        cache, store, reads = ObjectCache(tmp_path / "cache", 1 << 30), Store(checksum), list[int]()
        cache.prepare()
        for _ in range(3):
            with fetched(store, tmp_path / "root", cache) as workspace:
                assert (workspace.data / "key").read_bytes() == CONTENT
            reads.append(store.reads)
        assert reads == ([1, 1, 1] if checksum == MD5 else [1, 2, 2])


@pytest.mark.usefixtures("every_object_is_large")
def test_the_wait_for_the_clock_is_bounded_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may be on another machine, whose clock is in the future."""
    waits: list[float] = []
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "sleep", waits.append)
    with fetched(Store(), tmp_path):
        assert waits == [2.0]
