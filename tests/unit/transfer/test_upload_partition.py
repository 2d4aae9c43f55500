"""Uploads: small files with others at once, and what is left of them by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.errors import ProjectionError
from perago.transfer.cache import ObjectCache
from perago.transfer.inventory import LARGEST_IN_BATCH, RemoteObject, SmallWrite
from perago.transfer.plan import Upload
from perago.transfer.scan import StatRecord
from perago.transfer.uploading import upload_partition


class Written:
    """A store that can only be written; it leaves the keys of ``left_out`` out of batches."""

    def __init__(self, left_out: Iterable[str] = ()) -> None:
        self._left_out = set(left_out)
        self.at_once: dict[str, tuple[bytes, str]] = {}
        self.by_itself: dict[str, tuple[bytes, str]] = {}

    def write_many(
        self, repository: str, branch: str, writes: Iterable[SmallWrite], at_once: int
    ) -> Iterator[tuple[SmallWrite, str]]:
        for write in writes:
            if write.key not in self._left_out:
                self.at_once[write.key] = write.content, write.content_type
                yield write, md5_of(write.content)

    def write(
        self,
        repository: str,
        branch: str,
        key: str,
        source: Path,
        *,
        content_type: str,
        metadata: dict[str, str],
    ) -> str:
        self.by_itself[key] = source.read_bytes(), content_type
        return ""


def md5_of(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()  # noqa: S324  not for security


def upload(folder: Path, path: str, content: bytes, **fields: Any) -> Upload:
    (folder / path).write_bytes(content)
    return Upload(path, f"prefix/{path}", StatRecord.of((folder / path).lstat()), **fields)


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    made = ObjectCache(tmp_path / "cache")
    made.prepare()
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_what_is_left_out_of_a_batch_is_written_by_itself(folder: Path, cache: ObjectCache) -> None:
    uploads = [upload(folder, name, name.encode(), content_type="text/csv") for name in "abc"]
    store: Any = Written(left_out=["prefix/b"])
    upload_partition(store, "repo", "staging", uploads, folder, 4, cache)
    assert store.at_once == {f"prefix/{name}": (name.encode(), "text/csv") for name in "ac"}
    assert store.by_itself == {"prefix/b": (b"b", "text/csv")}
    for name in "abc":
        remote = RemoteObject("any", 1, checksum=md5_of(name.encode()))
        assert cache.find("repo", remote) is not None


def test_large_files_and_those_with_user_metadata_are_written_by_themselves(folder: Path) -> None:
    large = bytes(LARGEST_IN_BATCH + 1)
    uploads = [
        upload(folder, "largest", large[1:]),
        upload(folder, "large", large),
        upload(folder, "empty", b""),
        upload(folder, "with", b"metadata", metadata={"key": "value"}),
    ]
    store: Any = Written()
    upload_partition(store, "repo", "staging", uploads, folder, 4)
    assert store.at_once.keys() == {"prefix/largest", "prefix/empty"}
    assert store.by_itself.keys() == {"prefix/large", "prefix/with"}


def rewrite(file: Path) -> None:
    file.write_bytes(b"else")


def replace(file: Path) -> None:
    file.rename(file.with_name("before"))
    file.write_bytes(b"text")


def link(file: Path) -> None:
    file.rename(file.with_name("before"))
    file.symlink_to("before")


@pytest.mark.parametrize("change", [rewrite, replace, link, Path.unlink])
def test_a_small_file_that_changed_since_the_scan_is_not_published(
    folder: Path, change: Any
) -> None:
    uploads = [upload(folder, "file", b"text")]
    change(folder / "file")
    store: Any = Written()
    with pytest.raises(ProjectionError, match="changed while it was being published: file"):
        upload_partition(store, "repo", "staging", uploads, folder, 4)
    assert (store.at_once, store.by_itself) == ({}, {})
