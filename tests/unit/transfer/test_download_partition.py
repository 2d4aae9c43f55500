"""The partition functions, where Spark would repeat a task or give one up."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.errors import BackendUnavailableError
from perago.transfer import downloading
from perago.transfer.cache import ObjectCache
from perago.transfer.downloading import DownloadTarget, download_partition, landing_folder
from perago.transfer.engine import download_target
from perago.transfer.inventory import LARGEST_IN_BATCH, PIECE, RemoteObject
from perago.transfer.scan import FetchedFile, StatRecord, scan


class Objects:
    """A store that can only be read; ``before`` happens while a download is under way."""

    def __init__(self, before: Path | None = None) -> None:
        self._goes = before

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        if self._goes is not None:
            self._goes.rename(self._goes.with_suffix(".over"))
        yield memoryview(key.encode())

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        """Leave all of it out."""
        return iter(())

    def read_many(
        self, repository: str, ref: str, objects: Iterable[RemoteObject], at_once: int
    ) -> Iterator[tuple[RemoteObject, memoryview]]:
        """Leave all of them out."""
        return iter(())


def download(store: Objects, place: DownloadTarget, size: int = 3) -> dict[str, FetchedFile]:
    objects = [("in/one", RemoteObject("one", size, ""))]
    return download_partition(store, "repository", "ref", objects, place, 4)  # type: ignore[arg-type]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_a_repeated_partition_puts_whole_files_in_place_again(data: Path) -> None:
    with download_target(data) as place:
        download(Objects(), place)
        fetched = download(Objects(), place)
    assert (data / "in" / "one").read_bytes() == b"one"
    assert scan(data).files == {"in/one": fetched["in/one"].record}
    assert [path.name for path in data.parent.iterdir()] == ["data"]


def test_large_objects_come_first_and_the_others_in_the_order_of_their_keys(data: Path) -> None:
    """One that began last would be waited for alone; a store prepares for the following keys."""
    read: list[str] = []

    class InOrder(Objects):
        def read(
            self, repository: str, ref: str, key: str, size: int, start: int = 0
        ) -> Iterator[memoryview]:
            read.append(key)
            yield memoryview(bytes(size))

    sizes = {"b": 10, "ä": 5, "a": PIECE, "large": PIECE + 1, "a/b": 1, "larger": PIECE + 2}
    objects = [(key.replace("/", "-"), RemoteObject(key, size)) for key, size in sizes.items()]
    store: Any = InOrder()
    download_partition(store, "repository", "ref", objects, DownloadTarget(data), 1)
    assert read == ["larger", "large", "a", "a/b", "b", "ä"]


def test_a_task_that_was_given_up_cannot_put_a_file_in_place(data: Path) -> None:
    """Its download began, the job ended, and the body may already have removed the file."""
    landing = landing_folder(data)
    landing.mkdir()
    with pytest.raises(FileNotFoundError):
        download(Objects(before=landing), DownloadTarget.beside(data))
    assert scan(data).files == {}


def test_a_file_that_came_short_is_never_in_the_data_folder(data: Path) -> None:
    with download_target(data) as place, pytest.raises(BackendUnavailableError, match="3 bytes"):
        download(Objects(), place, size=4)
    assert scan(data).files == {}


def test_a_file_that_is_already_there_is_replaced_and_never_written_through(data: Path) -> None:
    outside = data.parent / "outside"
    outside.write_bytes(b"kept")
    (data / "in").mkdir()
    (data / "in" / "one").symlink_to(outside)
    with download_target(data) as place:
        download(Objects(), place)
    assert outside.read_bytes() == b"kept"
    assert not (data / "in" / "one").is_symlink()


class ReadAtOnce(Objects):
    """Objects whose content is their key; what ``damage`` returns of it arrives in a batch."""

    def __init__(self, damage: Callable[[bytes], bytes | None]) -> None:
        super().__init__()
        self._damage = damage
        self.at_once: list[str] = []
        self.by_itself: list[str] = []

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        self.by_itself.append(key)
        yield memoryview(key.encode())

    def read_many(
        self, repository: str, ref: str, objects: Iterable[RemoteObject], at_once: int
    ) -> Iterator[tuple[RemoteObject, memoryview]]:
        for remote in objects:
            self.at_once.append(remote.key)
            if (content := self._damage(remote.key.encode())) is not None:
                yield remote, memoryview(content)


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (lambda content: content, []),
        (bytes.upper, ["one", "two"]),
        (lambda _: None, ["one", "two"]),
    ],
    ids=["all well", "damaged", "left out"],
)
def test_what_did_not_arrive_well_with_others_is_read_by_itself(
    data: Path, tmp_path: Path, damage: Callable[[bytes], bytes | None], left: list[str]
) -> None:
    store: Any = ReadAtOnce(damage)
    objects = [(f"in/{key}", RemoteObject(key, 3, checksum=md5_of(key))) for key in ("one", "two")]
    cache = ObjectCache(tmp_path / "cache")
    cache.prepare()
    found = download_partition(store, "repo", "ref", objects, DownloadTarget(data), 4, cache)
    assert (store.at_once, sorted(store.by_itself)) == (["one", "two"], left)
    assert {path: (data / path).read_text() for path in found} == {"in/one": "one", "in/two": "two"}
    assert {file.digest for file in found.values()} == {md5_of("one"), md5_of("two")}
    assert all(cache.find("repo", remote) for _, remote in objects)
    for path, file in found.items():
        assert file.record == StatRecord.of((data / path).stat())


def test_what_has_no_md5_or_is_empty_or_larger_is_read_by_itself(data: Path) -> None:
    store: Any = ReadAtOnce(lambda content: content)
    kinds = {"a": "token", "b": md5_of("b"), "c" * (LARGEST_IN_BATCH + 1): "f" * 32}
    objects = [(key[:5], RemoteObject(key, len(key), checksum=kinds[key])) for key in kinds]
    objects.append(("empty", RemoteObject("empty", 0, checksum=md5_of(""))))
    store.read = lambda repository, ref, key, size, start: iter(
        [memoryview(key.encode()[start:size])]
    )
    download_partition(store, "repo", "ref", objects, DownloadTarget(data), 4)
    assert store.at_once == ["b"]
    assert (data / "empty").read_bytes() == b""


class Saving(Objects):
    """Has one large object, of which the fast way gives so many bytes."""

    content = b"0123456789" * 100

    def __init__(self, given: int) -> None:
        super().__init__()
        self.given = given
        self.read_from: list[int] = []

    def save(
        self, repository: str, ref: str, key: str, size: int, descriptor: int
    ) -> Iterator[int]:
        # A piece that failed has left anything behind those that came before it.
        os.pwrite(descriptor, self.content[: self.given] + b"garbage", 0)
        for start in range(0, self.given, 100):
            yield min(100, self.given - start)

    def read(
        self, repository: str, ref: str, key: str, size: int, start: int = 0
    ) -> Iterator[memoryview]:
        if start < size:
            self.read_from.append(start)
            yield memoryview(self.content)[start:]


@pytest.mark.parametrize("given", [0, 100, 900, 993])
def test_what_the_fast_way_leaves_out_of_a_large_object_is_read(
    data: Path, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "LARGEST_HASHED", 10)
    store: Any = Saving(given)
    objects = [("large", RemoteObject("large", 1000, checksum="f" * 32))]
    download_partition(store, "repo", "ref", objects, DownloadTarget(data), 4)
    assert (data / "large").read_bytes() == store.content
    assert store.read_from == [given]


def test_nothing_is_read_after_a_fast_way_to_the_end(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "LARGEST_HASHED", 10)

    class Whole(Saving):
        def save(
            self, repository: str, ref: str, key: str, size: int, descriptor: int
        ) -> Iterator[int]:
            os.pwrite(descriptor, self.content, 0)
            yield size

    store: Any = Whole(1000)
    objects = [("large", RemoteObject("large", 1000, checksum="f" * 32))]
    download_partition(store, "repo", "ref", objects, DownloadTarget(data), 4)
    assert ((data / "large").read_bytes(), store.read_from) == (store.content, [])


def test_another_failure_ends_the_fast_way_too(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "LARGEST_HASHED", 10)
    begun = threading.Event()

    class Endless(Saving):
        def save(
            self, repository: str, ref: str, key: str, size: int, descriptor: int
        ) -> Iterator[int]:
            if key == "bad":
                begun.wait(10)
                return
            begun.set()
            for _ in range(10_000):
                yield 0
                time.sleep(0.001)

        def read(
            self, repository: str, ref: str, key: str, size: int, start: int = 0
        ) -> Iterator[memoryview]:
            raise BackendUnavailableError(f"{key} cannot be read")

    store: Any = Endless(0)
    objects = [(key, RemoteObject(key, 1000, checksum="f" * 32)) for key in ("bad", "good")]
    with pytest.raises(BackendUnavailableError, match="bad cannot be read"):
        download_partition(store, "repo", "ref", objects, DownloadTarget(data), 4)


def md5_of(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()  # noqa: S324  not for security
