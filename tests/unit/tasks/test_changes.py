"""The changes of a workspace, and which of its files are read again for them."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from perago import SparkWorkspace, WorkspaceChanges
from perago.errors import UnsupportedOperationError
from perago.tasks.changes import new_data_files

IN = "s3a://repo/0123/data"
CHANGES = WorkspaceChanges(
    added=("raw/day=1/b.parquet", "raw/_SUCCESS", "raw-old/x.parquet"),
    changed=("raw/day=1/a.parquet",),
    removed=("raw/day=0/z.parquet",),
    since="9876",
)


def workspace(changes: WorkspaceChanges = CHANGES, **more: Any) -> SparkWorkspace:
    return SparkWorkspace(
        MagicMock(), IN, **{"compare": lambda _: changes, "list_paths": lambda: (), **more}
    )


def loads(space: SparkWorkspace) -> list[tuple[Any, dict[str, Any]]]:
    return [(it.args[0], it.kwargs) for it in space.spark.read.load.call_args_list]


def test_changes_below_a_path_are_those_of_the_folder_or_of_the_file() -> None:
    assert CHANGES.below("") == CHANGES
    found = CHANGES.below("raw")
    assert found.added == ("raw/day=1/b.parquet", "raw/_SUCCESS")
    assert (found.changed, found.removed) == (CHANGES.changed, CHANGES.removed)
    assert found.since == "9876"
    assert CHANGES.below("raw-old/x.parquet").added == ("raw-old/x.parquet",)
    assert not CHANGES.below("ra")
    assert CHANGES
    assert not WorkspaceChanges(since="9876")


def test_files_with_rows_are_what_spark_takes_for_data() -> None:
    assert new_data_files(CHANGES, "raw") == ["raw/day=1/a.parquet", "raw/day=1/b.parquet"]
    assert new_data_files(CHANGES, "raw/day=0") == []
    # A file that is named is read, whatever its name.
    assert new_data_files(CHANGES, "raw/_SUCCESS") == ["raw/_SUCCESS"]
    below = WorkspaceChanges(added=("_hidden/a", "a", ".b"))
    assert new_data_files(below, "") == ["a"]


def test_a_workspace_is_compared_once_for_each_ref() -> None:
    asked: list[str | None] = []

    def compare(since: str | None) -> WorkspaceChanges:
        asked.append(since)
        return WorkspaceChanges(since=since)

    space = workspace(compare=compare)
    for since in (None, "main", None, "main"):
        assert space.changes(since=since).since == since
    assert asked == [None, "main"]
    with pytest.raises(ValueError, match="since is empty"):
        space.changes(since="")
    with pytest.raises(RuntimeError, match="compare="):
        workspace(compare=None).changes()


def test_changed_files_are_read_as_parts_of_their_table() -> None:
    space = workspace()
    space.read_changes("raw", mergeSchema=True)
    (whole, _), (files, how) = loads(space)
    assert whole == f"{IN}/raw"
    assert files == [f"{IN}/raw/day=1/a.parquet", f"{IN}/raw/day=1/b.parquet"]
    assert how == {
        "format": "parquet",
        "schema": space.spark.read.load.return_value.schema,
        "basePath": f"{IN}/raw",
        "mergeSchema": True,
    }


def test_the_rows_of_a_table_are_not_read_for_its_schema() -> None:
    space = workspace()
    space.read_changes("raw", format="json")
    space.read_changes("raw", schema="id BIGINT")
    (_, json), (_, given) = loads(space)
    assert (json["schema"], given["schema"]) == (None, "id BIGINT")


def test_without_changes_only_the_columns_are_read() -> None:
    space = workspace(WorkspaceChanges(since="9876"), list_paths=lambda: ["raw/a.parquet"])
    frame = space.read_changes("raw", schema="id BIGINT")
    assert loads(space) == [(f"{IN}/raw", {"format": "parquet", "schema": "id BIGINT"})]
    assert frame is space.spark.read.load.return_value.limit.return_value
    space.spark.read.load.return_value.limit.assert_called_once_with(0)


@pytest.mark.parametrize("since", [None, "9876"])
def test_a_table_that_is_not_there_yet_has_the_given_columns(since: str | None) -> None:
    space = workspace(WorkspaceChanges(since=since), list_paths=lambda: ["raw-old/a"])
    frame = space.read_changes("raw", schema="id BIGINT")
    space.spark.createDataFrame.assert_called_once_with([], "id BIGINT")
    assert frame is space.spark.createDataFrame.return_value
    assert loads(space) == []


def test_before_the_first_publication_the_table_is_read_as_it_is() -> None:
    space = workspace(WorkspaceChanges(added=("raw/a.csv",)))
    space.read_changes("raw", format="csv", header=True)
    assert loads(space) == [(f"{IN}/raw", {"format": "csv", "schema": None, "header": True})]


def test_names_that_look_like_patterns_are_read_literally() -> None:
    space = workspace(WorkspaceChanges(added=("raw/a[1]{b}*?.json",), since="9876"))
    space.read_changes("raw", format="json")
    [(files, _)] = loads(space)
    assert files == [rf"{IN}/raw/a\[1\]\{{b\}}\*\?.json"]


def test_a_single_file_has_no_table_above_it() -> None:
    space = workspace(WorkspaceChanges(changed=("raw.csv",), since="9876"))
    space.read_changes("raw.csv", format="csv")
    assert loads(space) == [([f"{IN}/raw.csv"], {"format": "csv", "schema": None})]


def test_a_pattern_and_a_format_without_files_are_refused() -> None:
    with pytest.raises(ValueError, match="without a pattern"):
        workspace().read_changes("raw/*.json")
    with pytest.raises(ValueError, match="relative path"):
        workspace().read_changes("../raw")
    with pytest.raises(UnsupportedOperationError, match="'delta'") as caught:
        workspace().read_changes("raw", format="delta")
    assert "readChangeFeed" in caught.value.hint
