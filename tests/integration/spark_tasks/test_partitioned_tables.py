"""Tables in partitions: one partition replaced, none left, and what Spark's own mode gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from perago import SparkWorkspace
from perago.protocol.outcome import Completed
from support.real_world import Params, Result
from support.spark_world import ALSO_ON_A_CLUSTER, RealSparkWorld, attempt, refused

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]

Write = Callable[[SparkWorkspace], None]
_DAYS = "SELECT id, CAST(id % 3 AS INT) AS day, '{}' AS written FROM range(6)"
_TABLE = "data/days"


def publish(world: RealSparkWorld, *writes: Write) -> None:
    """One attempt; what it published is the next one's input."""

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        for write in writes:
            write(workspace)
        return Result()

    outcome = attempt(world, body)
    assert isinstance(outcome, Completed), outcome
    world.ref = outcome.output["workspace"]["ref"]


def write_days(workspace: SparkWorkspace) -> None:
    workspace.write(workspace.spark.sql(_DAYS.format("first")), "days", partition_by=["day"])


def replace(where: str, written: str) -> Write:
    def write(workspace: SparkWorkspace) -> None:
        frame = workspace.spark.sql(_DAYS.format(written)).where(where)
        workspace.write(frame, "days", mode="overwrite_partitions", partition_by=["day"])

    return write


def files(world: RealSparkWorld, day: str = "") -> set[str]:
    keys = world.paths(prefix=f"{_TABLE}/{day}")
    return {key for key in keys if not key.endswith(("/", "_SUCCESS"))}


def described(world: RealSparkWorld) -> tuple[str, list[tuple[int, int, str]]]:
    """The schema and the rows, as Spark reads them from the published commit."""
    found: list[tuple[str, list[tuple[int, int, str]]]] = []

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        frame = workspace.read("days")
        rows = sorted(tuple(row) for row in frame.select("id", "day", "written").collect())
        found.append((frame.schema.simpleString(), rows))
        return Result()

    assert isinstance(attempt(world, body, read_only=True), Completed)
    return found[0]


SCHEMA = "struct<id:bigint,written:string,day:int>"


@ALSO_ON_A_CLUSTER
def test_touched_partitions_are_replaced_and_the_others_are_the_same_objects(
    world: RealSparkWorld,
) -> None:
    publish(world, write_days)
    kept, replaced = files(world, "day=0/") | files(world, "day=2/"), files(world, "day=1/")
    # Twice: the second one replaces what the first one wrote in the same attempt.
    publish(world, replace("day = 1", "lost"), replace("day = 1 AND id = 4", "second"))
    assert kept < files(world)
    assert not replaced & files(world)
    assert described(world) == (
        SCHEMA,
        [(0, 0, "first"), (2, 2, "first"), (3, 0, "first"), (4, 1, "second"), (5, 2, "first")],
    )
    [success] = [
        item
        for item in world.objects.list(world.repository, "main", f"{_TABLE}/")
        if item.key.endswith("/_SUCCESS")
    ]
    pieces = world.objects.read(world.repository, "main", success.key, success.size)
    assert json.loads(b"".join(pieces))["committer"] == "magic"


def test_a_partition_is_the_same_however_its_column_is_spelt(world: RealSparkWorld) -> None:
    def write_spelt(workspace: SparkWorkspace) -> None:
        frame = workspace.spark.sql(_DAYS.format("first")).withColumnRenamed("day", "Day")
        workspace.write(frame, "days", partition_by=["Day"])

    publish(world, write_spelt)
    publish(world, replace("day = 1", "second"))
    # The other partitions keep the spelling, and Spark reads both as one column.
    assert [bool(files(world, day)) for day in ("Day=0/", "Day=1/", "day=1/")] == [1, 0, 1]
    _, rows = described(world)
    assert rows == [
        (0, 0, "first"), (1, 1, "second"), (2, 2, "first"),
        (3, 0, "first"), (4, 1, "second"), (5, 2, "first"),
    ]  # fmt: skip


def test_a_workspace_that_is_one_table_is_replaced_by_partitions_too(
    world: RealSparkWorld,
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        frame = workspace.spark.sql(_DAYS.format("second")).where("day = 1")
        workspace.write(frame, "", mode="overwrite_partitions", partition_by=["day"])
        return Result()

    publish(world, write_days)
    kept, replaced = files(world, "day=0/") | files(world, "day=2/"), files(world, "day=1/")
    outcome = attempt(world, body, prefix=_TABLE)
    assert isinstance(outcome, Completed), outcome
    assert kept < files(world)
    assert not replaced & files(world)
    world.ref = outcome.output["workspace"]["ref"]
    assert [row for row in described(world)[1] if row[1] == 1] == [
        (1, 1, "second"),
        (4, 1, "second"),
    ]


def test_an_empty_partitioned_table_keeps_its_schema_until_it_has_partitions(
    world: RealSparkWorld,
) -> None:
    def empty(workspace: SparkWorkspace) -> None:
        frame = workspace.spark.sql(_DAYS.format("never")).where("id < 0")
        workspace.write(frame, "days", partition_by=["day"])

    publish(world, write_days, empty)
    assert described(world) == (SCHEMA, [])
    publish(world, replace("day = 1", "second"))
    assert described(world) == (SCHEMA, [(1, 1, "second"), (4, 1, "second")])
    assert all("/day=1/" in key for key in files(world))


def test_a_table_without_partitions_is_not_hidden_behind_new_ones(world: RealSparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        frame = workspace.read("raw")
        workspace.write(frame, "raw", mode="overwrite_partitions", partition_by=["user"])
        return Result()

    assert "not partitioned" in refused(world, body, "UnsupportedOperationError").reason


def test_the_folders_of_a_unit_test_have_the_same_modes(
    world: RealSparkWorld, tmp_path: Path
) -> None:
    found: list[list[int]] = []

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        folder = SparkWorkspace(workspace.spark, f"file://{tmp_path}", f"file://{tmp_path}")
        for write in (replace("id < 0", "never"), write_days, replace("id = 4", "second")):
            write(folder)
            found.append(sorted(row.id for row in folder.read("days").collect()))
        return Result()

    assert isinstance(attempt(world, body), Completed)
    assert found == [[], [0, 1, 2, 3, 4, 5], [0, 2, 3, 4, 5]]


@pytest.mark.parametrize("how", ["option", "sql"])
def test_sparks_dynamic_mode_is_refused_with_the_way_out(world: RealSparkWorld, how: str) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        frame, target = workspace.read("raw"), workspace.output("users")
        if how == "option":
            mode = {"partitionOverwriteMode": "dynamic"}
            workspace.write(frame, "users", partition_by=["user"], **mode)
        else:
            workspace.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
            frame.createOrReplaceTempView("raw")
            create = f"CREATE TABLE users USING parquet PARTITIONED BY (user) LOCATION '{target}'"
            workspace.spark.sql(f"{create} AS TABLE raw")
            workspace.spark.sql("INSERT OVERWRITE users SELECT id, amount, user FROM raw")
        return Result()

    outcome = refused(world, body, "UnsupportedOperationError")
    assert "overwrite_partitions" in str(outcome.hint)
