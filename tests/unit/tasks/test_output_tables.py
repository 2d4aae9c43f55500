"""The tables of a unit test's folder: partitions are replaced as on a staging branch."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago.tasks.output_tables import FolderTables, folder_tables, is_data


def put(root: Path, *names: str) -> None:
    for name in names:
        file = root / "t" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("data")


def names(root: Path) -> list[str]:
    table = root / "t"
    return sorted(it.relative_to(table).as_posix() for it in table.rglob("*") if it.is_file())


def test_the_older_files_of_touched_partitions_go_and_the_others_stay(tmp_path: Path) -> None:
    put(tmp_path, "_SUCCESS", "empty", "day=1/a", "day=1/.a.crc", "day=2/a")
    tables = FolderTables(tmp_path)
    assert tables.loose_files("t") == ["t/empty"]
    with tables.replacing_partitions("t"):
        pass
    assert "empty" in names(tmp_path)
    with tables.replacing_partitions("t"):
        put(tmp_path, "day=1/n", "day=3/n")
    assert names(tmp_path) == ["_SUCCESS", "day=1/.a.crc", "day=1/n", "day=2/a", "day=3/n"]


def test_a_partition_is_the_same_however_its_columns_are_spelt(tmp_path: Path) -> None:
    put(tmp_path, "empty", "Day=a/x", "Day=A/x")
    with FolderTables(tmp_path).replacing_partitions("t"):
        put(tmp_path, "day=a/n")
    assert names(tmp_path) == ["Day=A/x", "day=a/n"]


def test_a_table_has_files_when_spark_would_read_one(tmp_path: Path) -> None:
    tables = FolderTables(tmp_path)
    put(tmp_path, "_SUCCESS", "_temporary/0/x")
    assert not tables.has_files("t")
    assert not tables.has_files("missing")
    put(tmp_path, "day=1/x")
    assert tables.has_files("t")


def test_only_a_folder_of_this_machine_has_folder_tables(tmp_path: Path) -> None:
    for start in ("file://", "file:"):
        assert folder_tables(f"{start}{tmp_path}/a%20b") == FolderTables(tmp_path / "a%20b")
    assert folder_tables("s3a://repo/branch") is None
    assert folder_tables(None) is None


@pytest.mark.parametrize("name", ["x", "day=1/x", "_day=1/x", "day=1/x=_y/z"])
def test_data_is_what_spark_reads(name: str) -> None:
    assert is_data(name)


@pytest.mark.parametrize("name", ["_SUCCESS", "day=1/_x", "_temporary/0/x", ".x.crc", "day=1/", ""])
def test_what_is_hidden_is_not(name: str) -> None:
    assert not is_data(name)
