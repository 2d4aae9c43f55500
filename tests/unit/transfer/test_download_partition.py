"""The partition functions, where Spark would repeat a task or give one up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.errors import BackendUnavailableError
from perago.transfer.engine import download_target
from perago.transfer.inventory import PIECE, RemoteObject
from perago.transfer.moving import DownloadTarget, download_partition, landing_folder
from perago.transfer.scan import FetchedFile, scan


class Objects:
    """A store whose only call is a read; ``before`` happens while a download is under way."""

    def __init__(self, before: Path | None = None) -> None:
        self._goes = before

    def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
        if self._goes is not None:
            self._goes.rename(self._goes.with_suffix(".over"))
        yield memoryview(key.encode())


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
        def read(self, repository: str, ref: str, key: str, size: int) -> Iterator[memoryview]:
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
