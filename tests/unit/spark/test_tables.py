"""Partitions replaced by appending files and deleting the older ones beside them."""

from __future__ import annotations

import pytest

from perago.errors import BackendUnavailableError, UnfinishedOperationError
from perago.protocol.workspace import StagingBranch
from perago.spark.ledger import WriteLedger
from perago.spark.tables import StagedTables
from perago.testing import InMemoryLake, fails
from perago.testing.repository import StoredObject

STAGING = StagingBranch("repo", "staging")
OUT = "s3a://repo/staging/data"


class Table:
    """One table on a staging branch, with two partitions in the input."""

    def __init__(self, *names: str) -> None:
        self.lake = InMemoryLake()
        self.lake.create_repository("repo")
        files = {f"data/t/{name}": b"old" for name in names}
        beside = {"data/t2/day=1/old": b"old", "data/day=1/old": b"old"}
        head = self.lake.write_and_commit("repo", "main", {**files, **beside}, None)
        self.lake.create_branch(STAGING, head.id)
        self.ledger = WriteLedger()
        self.tables = StagedTables(self.lake.objects, STAGING, "data", OUT, self.ledger)

    def put(self, *names: str) -> None:
        for name in names:
            self.lake.objects.put("repo", "staging", f"data/t/{name}", StoredObject(b"new"))

    def replace(self, *names: str) -> None:
        with self.tables.replacing_partitions("t"):
            self.put(*names)

    def names(self) -> list[str]:
        keys = self.lake.contents("repo", "staging")
        assert {"data/t2/day=1/old", "data/day=1/old"} < set(keys)
        return sorted(key[7:] for key in keys if key.startswith("data/t/"))


def test_the_older_files_of_touched_partitions_go_and_the_others_stay() -> None:
    table = Table("_SUCCESS", "day=1/a", "day=1/b", "day=1/_hidden", "day=2/a", "day=10/a")
    table.replace("_SUCCESS", "day=1/n", "day=3/n")
    assert table.names() == [
        "_SUCCESS", "day=1/_hidden", "day=1/n", "day=10/a", "day=2/a", "day=3/n",
    ]  # fmt: skip


def test_what_the_same_attempt_wrote_before_is_replaced_too() -> None:
    table = Table("day=1/a")
    table.replace("day=1/first", "day=2/first")
    table.replace("day=1/second")
    assert table.names() == ["day=1/second", "day=2/first"]


@pytest.mark.parametrize("prefix", ["data", ""])
def test_a_workspace_that_is_one_table_is_replaced_by_partitions_too(prefix: str) -> None:
    start = f"{prefix}/" if prefix else ""
    lake = InMemoryLake()
    lake.create_repository("repo")
    names = ("empty", "day=1/a", "day=2/a")
    head = lake.write_and_commit("repo", "main", {f"{start}{it}": b"old" for it in names}, None)
    lake.create_branch(STAGING, head.id)
    ledger = WriteLedger()
    out = f"s3a://repo/staging/{prefix}".rstrip("/")
    tables = StagedTables(lake.objects, STAGING, prefix, out, ledger)
    assert tables.has_files("")
    assert tables.loose_files("") == ["empty"]
    with tables.replacing_partitions(""):
        lake.objects.put("repo", "staging", f"{start}day=1/n", StoredObject(b"new"))
    assert sorted(lake.contents("repo", "staging")) == [f"{start}day=1/n", f"{start}day=2/a"]
    lake.faults.inject("objects.list", fails(BackendUnavailableError("down")))
    with pytest.raises(BackendUnavailableError):
        tables.has_files("")
    assert ledger.open() == [out]


def test_a_partition_is_the_same_however_its_columns_are_spelt() -> None:
    table = Table("Day=a/Hour=1/x", "Day=a/Hour=2/x", "Day=A/Hour=1/x", "Day=b/Hour=1/x")
    table.replace("day=a/HOUR=1/n")
    assert table.names() == [
        "Day=A/Hour=1/x", "Day=a/Hour=2/x", "Day=b/Hour=1/x", "day=a/HOUR=1/n",
    ]  # fmt: skip


def test_the_file_of_an_empty_table_goes_with_the_first_partition() -> None:
    table = Table("empty")
    table.replace()
    assert table.names() == ["empty"]
    assert table.tables.loose_files("t") == ["t/empty"]
    table.replace("day=1/n")
    assert table.names() == ["day=1/n"]


def test_more_files_than_one_call_deletes_go() -> None:
    table = Table(*(f"day=1/{number}" for number in range(1001)))
    table.replace("day=1/n")
    assert table.names() == ["day=1/n"]


def test_a_deletion_that_fails_leaves_a_failed_write_until_it_is_repeated() -> None:
    table = Table("day=1/a")
    table.lake.faults.inject("objects.delete", fails(BackendUnavailableError("down")))
    with pytest.raises(BackendUnavailableError):
        table.replace("day=1/n")
    assert table.ledger.open() == [f"{OUT}/t"]
    table.replace("day=1/m")
    assert table.ledger.open() == []
    assert table.names() == ["day=1/m"]


@pytest.mark.parametrize("call", ["objects.delete", "objects.uncommitted"])
def test_a_write_of_other_partitions_finishes_one_that_failed(call: str) -> None:
    table = Table("day=1/a", "day=2/a", "day=3/a")

    def break_after_the_append() -> None:
        table.put("day=1/first", "day=2/first")
        table.lake.faults.inject(call, fails(BackendUnavailableError("down")))

    with pytest.raises(BackendUnavailableError), table.tables.replacing_partitions("t"):
        break_after_the_append()
    table.replace("day=2/second")
    assert table.ledger.open() == []
    assert table.names() == ["day=1/first", "day=2/second", "day=3/a"]
    table.replace("day=1/third")
    assert table.names() == ["day=1/third", "day=2/second", "day=3/a"]


def test_a_listing_after_the_write_that_fails_leaves_a_failed_write() -> None:
    table = Table("day=1/a")
    table.lake.faults.inject("objects.list", fails(BackendUnavailableError("down")))
    with pytest.raises(BackendUnavailableError):
        table.tables.has_files("t")
    assert table.ledger.open() == [f"{OUT}/t"]
    assert table.tables.has_files("t")
    assert table.ledger.open() == []


def test_an_append_that_fails_deletes_nothing() -> None:
    table = Table("day=1/a")
    with pytest.raises(KeyError), table.tables.replacing_partitions("t"):
        raise KeyError
    assert table.names() == ["day=1/a"]


def test_a_table_has_files_when_spark_would_read_one() -> None:
    table = Table("_SUCCESS", "day=1/_temporary/0/x", "day=1/.x.crc", "day=1/")
    assert not table.tables.has_files("t")
    table.put("day=1/x")
    assert table.tables.has_files("t")


def test_a_replacement_counts_as_a_write_to_its_end() -> None:
    table = Table("day=1/a")
    with table.tables.replacing_partitions("t"):
        assert table.ledger.close() == 1
    with pytest.raises(UnfinishedOperationError), table.tables.replacing_partitions("t"):
        raise AssertionError
