"""Files arrive between the runs, and each is loaded once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from incremental_load.tasks import LoadResult, load_orders
from perago.testing import TaskWorkspace

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

DATA = Path(__file__).parent / "data"


def land(space: TaskWorkspace, day: str) -> None:
    file = f"landing/{day}.json"
    space.put({file: (DATA / day / "sales" / file).read_text()})


def test_each_file_is_loaded_once(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession
) -> None:
    space = perago_workspace
    land(space, "2026-03-13")
    first = space.run(load_orders, spark=perago_spark).result
    assert first == LoadResult(files=1, rows=2)

    land(space, "2026-03-14")
    second = space.run(load_orders, spark=perago_spark)
    assert second.result == LoadResult(files=1, rows=1)
    # The files of the first run are still there.
    assert second.diff.removed == ()

    third = space.run(load_orders, spark=perago_spark)
    assert third.result == LoadResult(files=0, rows=0)
    assert not third.diff
    orders = perago_spark.read.parquet((space.folder / "orders").as_uri())
    assert sorted(row.id for row in orders.collect()) == [1, 2, 3]


def test_a_file_that_changed_is_not_loaded_twice(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession
) -> None:
    land(perago_workspace, "2026-03-13")
    assert perago_workspace.run(load_orders, spark=perago_spark).result.rows == 2
    perago_workspace.put({"landing/2026-03-13.json": '{"id": 1}'})
    failure = perago_workspace.run(load_orders, spark=perago_spark).failure
    assert failure is not None
    assert "changed after they were loaded: landing/2026-03-13.json" in failure.reason
