"""When a download on Spark is compared in the worker's process, and that it is the same plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from perago.errors import PeragoError
from perago.testing import InMemoryLake
from perago.testing.repository import StoredObject
from perago.transfer.engine import Engine, download_target, make_folders
from perago.transfer.engines import Fetched, Plan
from perago.transfer.inventory import Source
from perago.transfer.on_spark import functions
from perago.transfer.on_spark.jobs import Jobs, Results, table_of
from perago.transfer.on_spark.plan import SparkFetched
from perago.transfer.on_spark.subtrees import list_subtrees, write_subtrees
from perago.transfer.on_spark.tables import FETCHED, LISTED
from perago.transfer.partition import Bounds
from perago.transfer.subtrees import WHOLE

SOURCE = Source("repo", "main", "p")
OBJECTS = {
    **{f"p/in/{name}": name.encode() * 4 for name in "abcd"},
    "p/top": b"top",
    "p/empty": b"",
    "p/becomes": b"a file",
    "p/kept/": b"",
    "p/dropped/": b"",
    "outside": b"x",
}
# What is in the folder after the download: seven files, and three folders.
FILES, ENTRIES, MARKERS, BYTES = 7, 10, 2, 25


class JobStartedError(Exception):
    """Stands for everything that Spark would do."""


def no_job(*_: object) -> NoReturn:
    raise JobStartedError


@dataclass
class Downloads:
    """The same projection, downloaded by either engine."""

    lake: InMemoryLake
    folder: Path

    def here(self) -> tuple[Fetched, Path]:
        data = self.folder / "here" / "data"
        data.mkdir(parents=True)
        return Engine(self.lake.objects).fetch(SOURCE, data), data

    def on_spark(self, bounds: Bounds) -> tuple[Fetched, Path]:
        """Run the tasks here, in turn, as Spark would."""
        data = self.folder / "spark" / "data"
        data.mkdir(parents=True)
        tables = data.with_name("tables")
        tables.mkdir()
        objects = self.lake.objects
        context = functions.TransferContext(
            data, SOURCE.repository, SOURCE.ref, 1, Path(), lambda _: objects
        )
        subtrees = write_subtrees([WHOLE], tables / "subtrees")
        listing: Results = {
            0: list_subtrees(context, SOURCE, tables, Bounds(), 0, list(subtrees.rows()))
        }
        markers = table_of(listing, tables / "markers", FETCHED)
        make_folders((row["path"] for row in markers.rows()), data)
        rows = list(table_of(listing, tables / "listed", LISTED).rows())
        with download_target(data):
            results = {
                number: functions.download(context, tables, number, rows[number::2])
                for number in range(min(2, len(rows)))
            }
        fetched = SparkFetched(
            jobs=Jobs(no_job, lambda _: None),
            task_context=no_job,
            data=data,
            source=SOURCE,
            bounds=Bounds(),
            min_subtrees=1,
            files=table_of(results, tables / "fetched", FETCHED),
            markers=markers,
            in_process=Engine(objects),
            compared_here=bounds,
        )
        return fetched, data


@pytest.fixture
def downloads(tmp_path: Path) -> Downloads:
    lake = InMemoryLake()
    lake.create_repository("repo")
    for key, content in OBJECTS.items():
        stored = StoredObject(content, content_type="text/x", metadata=(("of", key),))
        lake.objects.put("repo", "main", key, stored)
    return Downloads(lake, tmp_path)


def untouched(data: Path) -> None:
    """Leave everything."""


def changing(data: Path) -> None:
    (data / "in" / "a").write_bytes(b"AAAA")
    (data / "in" / "b").write_bytes(b"bbbb")
    (data / "in" / "c").write_bytes(b"longer than before")
    (data / "in" / "d").unlink()
    (data / "becomes").unlink()
    (data / "becomes").mkdir()
    (data / "becomes" / "folder").write_bytes(b"1")
    (data / "dropped").rmdir()
    (data / "new").touch()


def linking(data: Path) -> None:
    (data / "in" / "z").symlink_to("a")
    os.mkfifo(data / "in" / "y")


def misnaming(data: Path) -> None:
    for name in ("caf\udce9", "x\udcff"):
        (data / name).touch()


def outcome(plan: Callable[[], Plan]) -> object:
    try:
        made = plan()
    except PeragoError as error:
        return type(error), str(error), error.hint
    collected = made.collect()
    # Times and inodes differ between two folders.
    uploads = [replace(one, record=one.record._replace(**NO_TIMES)) for one in collected.uploads]
    return bool(made), made.summary(), uploads, collected.deletes


NO_TIMES = {"mtime_ns": 0, "ctime_ns": 0, "inode": 0}


@pytest.mark.parametrize("body", [untouched, changing, linking, misnaming])
@pytest.mark.parametrize("started", [0, 1 << 62], ids=["all suspected", "records trusted"])
def test_within_the_bounds_it_is_what_the_engine_in_process_finds_without_a_job(
    downloads: Downloads, body: Callable[[Path], None], started: int
) -> None:
    found = []
    for fetched, data in (downloads.here(), downloads.on_spark(Bounds())):
        body(data)
        found.append(outcome(partial(fetched.changes, started)))
    assert found[1] == found[0]


def test_what_the_download_knows_is_not_read_again(downloads: Downloads) -> None:
    fetched, data = downloads.on_spark(Bounds())
    changing(data)
    downloads.lake.objects.read = no_job  # type: ignore[method-assign,assignment]
    uploads = {one.path: one for one in fetched.changes(0).collect().uploads}
    assert sorted(uploads) == ["becomes/folder", "in/a", "in/c", "new"]
    assert uploads["in/a"].metadata == {"of": "p/in/a"}
    assert uploads["in/a"].content_type == "text/x"


def remove_all_but_one(data: Path) -> None:
    for path in (*(data / "in").iterdir(), data / "top", data / "empty"):
        path.unlink()


@pytest.mark.parametrize(
    ("body", "most", "is_on_spark"),
    [
        (untouched, Bounds(ENTRIES, BYTES), False),
        # Entries of the folder, which are its files and folders.
        (untouched, Bounds(ENTRIES - 1, BYTES), True),
        # Bytes that would have to be hashed.
        (untouched, Bounds(ENTRIES, BYTES - 1), True),
        # Objects and markers of the download, few of which are left.
        (remove_all_but_one, Bounds(FILES + MARKERS, BYTES), False),
        (remove_all_but_one, Bounds(FILES + MARKERS - 1, BYTES), True),
    ],
)
def test_beyond_any_bound_spark_compares(
    downloads: Downloads, body: Callable[[Path], None], most: Bounds, is_on_spark: bool
) -> None:
    fetched, data = downloads.on_spark(most)
    body(data)
    if is_on_spark:
        with pytest.raises(JobStartedError):
            fetched.changes(0)
    else:
        assert fetched.changes(0).summary()["uploads"] == 0


def test_bytes_that_no_body_touched_do_not_count(downloads: Downloads) -> None:
    fetched, _ = downloads.on_spark(Bounds(ENTRIES, 1))
    assert not fetched.changes(1 << 62)


def test_a_download_of_nothing_is_compared_here(tmp_path: Path) -> None:
    lake = InMemoryLake()
    lake.create_repository("repo")
    fetched, data = Downloads(lake, tmp_path).on_spark(Bounds())
    assert not fetched.changes(0)
    (data / "new").touch()
    assert fetched.changes(0).summary()["uploads"] == 1
