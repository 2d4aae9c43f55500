"""What the tasks of a listing and of a scan write, called here: what one process would find."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perago.errors import ProjectionError
from perago.testing import InMemoryLake
from perago.testing.repository import StoredObject
from perago.transfer.inventory import ObjectStore, Projection, Source, project
from perago.transfer.on_spark.functions import PartitionResult, TransferContext
from perago.transfer.on_spark.jobs import Results, table_of
from perago.transfer.on_spark.subtrees import (
    list_subtrees,
    problems_in,
    scan_subtrees,
    write_subtrees,
)
from perago.transfer.on_spark.tables import FETCHED, LISTED, LOCAL, TransferTable, load_metadata
from perago.transfer.partition import Bounds, TransferSize
from perago.transfer.paths import (
    FileSystem,
    check_projection,
    check_publishable,
    refuse_keys,
    refuse_paths,
)
from perago.transfer.scan import level, refuse_special, scan
from perago.transfer.subtrees import split
from support.trees import keys

BOUNDS = Bounds(objects=3, size=10)


def error_of(check: Callable[[], object]) -> str | None:
    try:
        check()
    except ProjectionError as error:
        return str(error)
    return None


def results_of(subtrees: TransferTable, task: Callable[..., PartitionResult]) -> Results:
    """Run a task with each part of the subtrees, as Spark would, and then retry each."""
    results: Results = {}
    for _ in range(2):
        for number in subtrees.parts:
            rows = [*TransferTable(subtrees.folder, subtrees.schema, {number: ()}).rows()]
            assert {row["partition"] for row in rows} == {number}
            results[number] = task(number, rows)
    return results


def listed_in_tasks(
    source: Source, store: ObjectStore, wanted: int, data: Path
) -> tuple[TransferTable, TransferTable]:
    tables = data.with_name("tables")
    tables.mkdir()
    subtrees = split(partial(source.level, store), wanted)
    written = write_subtrees(subtrees, tables / "subtrees")
    context = TransferContext(data, source.repository, source.ref, 1, Path(), lambda _: store)
    results = results_of(written, partial(list_subtrees, context, source, tables, BOUNDS))
    refuse_keys(problems_in(tables / "bad", results))
    assert {path.suffix for path in tables.rglob("*") if path.is_file()} == {".arrow"}
    return table_of(results, tables / "listed", LISTED), table_of(
        results, tables / "markers", FETCHED
    )


def assert_grouped(table: TransferTable) -> None:
    """Each part's rows are in the groups, with the sizes, that the result names."""
    for number, group_sizes in table.parts.items():
        rows = [
            r for r in TransferTable(table.folder, table.schema, {number: ()}).rows() if r["size"]
        ]
        for group, total in enumerate(group_sizes):
            sizes = [row["size"] for row in rows if row["group"] == group]
            assert sum(sizes) == total.size
            assert BOUNDS.hold(total) or total.objects == 1


def assert_same(listed: TransferTable, markers: TransferTable, projection: Projection) -> None:
    files = {
        row["path"]: (row["key"], row["size"], row["content_type"], load_metadata(row["metadata"]))
        for row in listed.rows()
    }
    assert files == {
        path: (item.key, item.size, item.content_type, item.metadata)
        for path, item in projection.files.items()
    }
    assert {row["path"]: row["key"] for row in markers.rows()} == {
        f"{path}/": item.key for path, item in projection.markers.items()
    }
    sizes = [item.size for item in projection.files.values()]
    assert listed.total() == TransferSize(len(sizes), sum(sizes))
    assert_grouped(listed)


@settings(max_examples=60, deadline=None)
@given(
    st.sets(keys | keys.map(lambda key: key + "/"), max_size=12),
    st.integers(1, 30),
    st.sampled_from(["", "a", "a/b"]),
)
def test_tasks_list_what_one_process_lists_or_refuse_it_with_the_same_words(
    listed: set[str], wanted: int, prefix: str
) -> None:
    lake = InMemoryLake()
    lake.create_repository("repo")
    inside = {f"{prefix}/{key}" if prefix else key for key in listed if "\ud800" not in key}
    for key in inside | {"a/.perago-attempt.json", ".perago-attempt.json/x", "_lakefs_actions/x"}:
        body = b"" if key.endswith("/") else key.encode()[:20]
        lake.objects.put("repo", "main", key, StoredObject(body, metadata=(("of", key),)))
    source = Source("repo", "main", prefix)
    projection = project(source.listing(lake.objects), prefix)
    with tempfile.TemporaryDirectory() as outer:
        data = Path(outer) / "data"
        data.mkdir()
        refused = error_of(lambda: check_projection(projection, data, FileSystem()))
        seen: list[TransferTable] = []
        assert (
            error_of(lambda: seen.extend(listed_in_tasks(source, lake.objects, wanted, data)))
            == refused
        )
        if refused is None:
            assert_same(seen[0], seen[1], projection)


def test_bad_keys_and_clashes_of_several_subtrees_are_one_error() -> None:
    lake = InMemoryLake()
    lake.create_repository("repo")
    bad = ["a/1", "a/b/c/2", "b//x", "c/d/../e", "c/f/g/h/1", "z/"]
    for key in [*bad, "a", "a-b/fine", "c/f/g", "c/fine", "z"]:
        lake.objects.put("repo", "main", key, StoredObject(b"" if key.endswith("/") else b"1"))
    source = Source("repo", "main", "")
    with tempfile.TemporaryDirectory() as outer:
        data = Path(outer) / "data"
        data.mkdir()
        found = error_of(lambda: listed_in_tasks(source, lake.objects, 100, data))
        assert len([*(data.with_name("tables") / "bad").iterdir()]) > 1
    assert found is not None
    assert found.splitlines() == [
        "6 object keys cannot be files here:",
        "  'a/1': 'a' is a file",
        "  'a/b/c/2': 'a' is a file",
        "  'b//x': an empty path segment",
        "  'c/d/../e': the path segment '..'",
        "  'c/f/g/h/1': 'c/f/g' is a file",
        "  'z/': 'z' is a file",
    ]


def scanned_in_tasks(data: Path, wanted: int, prefix: str = "") -> TransferTable:
    changes = data.with_name("changes")
    changes.mkdir()
    written = write_subtrees(split(partial(level, data), wanted), changes / "subtrees")
    results = results_of(written, partial(scan_subtrees, data, prefix, changes, BOUNDS))
    refuse_special(problems_in(changes / "special", results))
    refuse_paths(problems_in(changes / "bad", results))
    return table_of(results, changes / "local", LOCAL)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("a/b/c/deep", "a/file", "top", "d/one", "d/two"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    (folder / "empty" / "inside").mkdir(parents=True)
    for parent in (folder, folder / "a"):
        (parent / ".perago-attempt.json").touch()
    return folder


MANY = pytest.mark.parametrize("wanted", [1, 2, 4, 50])


@MANY
def test_tasks_scan_what_one_process_scans(data: Path, wanted: int) -> None:
    tree, local = scan(data), scanned_in_tasks(data, wanted)
    found = {row["path"]: row for row in local.rows()}
    assert len(found) == len([*local.rows()])
    assert {path for path in found if path.endswith("/")} == {f"{p}/" for p in tree.folders}
    files = {path: row for path, row in found.items() if not path.endswith("/")}
    assert {path: (row["size"], row["inode"], row["mtime_ns"]) for path, row in files.items()} == {
        path: (record.size, record.inode, record.mtime_ns) for path, record in tree.files.items()
    }
    assert local.total().objects == len(tree.files)
    assert_grouped(local)


@MANY
def test_what_is_refused_is_the_same_with_any_number_of_subtrees(data: Path, wanted: int) -> None:
    for name in ("d/link", "a/b/pipe", "empty/inside/link"):
        os.mkfifo(data / name) if name.endswith("pipe") else (data / name).symlink_to("x")
    (data / "_lakefs_actions").mkdir()
    expected = "workspace publication does not support sockets, pipes or devices: a/b/pipe"
    assert error_of(lambda: scan(data)) == expected
    assert error_of(lambda: scanned_in_tasks(data, wanted)) == expected


@MANY
def test_names_that_cannot_be_published_are_one_error(data: Path, wanted: int) -> None:
    for name in ("d/caf\udce9", "caf\udce9/x", "_lakefs_actions/x", "empty/\udcff"):
        (data / name).parent.mkdir(exist_ok=True)
        (data / name).touch()
    tree = scan(data)
    expected = error_of(lambda: check_publishable(tree.files, tree.folders, ""))
    assert expected is not None
    assert len(expected.splitlines()) == 6
    assert error_of(lambda: scanned_in_tasks(data, wanted)) == expected


@MANY
def test_an_empty_folder_whose_name_is_not_utf_8_is_nothing_to_publish(
    data: Path, wanted: int
) -> None:
    (data / "caf\udce9" / "inner").mkdir(parents=True)
    tree = scan(data)
    check_publishable(tree.files, tree.folders, "")
    assert scanned_in_tasks(data, wanted).total().objects == len(tree.files)
