"""A day is loaded, another one is added, and the first one is corrected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daily_partitions.tasks import orders_of_day
from perago.testing import TaskWorkspace

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

DATA = Path(__file__).parent / "data"
FIRST, SECOND = "2026-03-13", "2026-03-14"


def land(space: TaskWorkspace, day: str, text: str | None = None) -> None:
    file = Path("landing", day, "orders.csv")
    space.put({str(file): text or (DATA / day / "sales" / file).read_text()})


def partition(space: TaskWorkspace, day: str) -> dict[str, bytes]:
    return {path: it for path, it in space.files.items() if f"/day={day}/" in path}


def test_a_run_replaces_the_partition_of_its_day(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession
) -> None:
    space = perago_workspace
    for day, rows in ((FIRST, 3), (SECOND, 2)):
        land(space, day)
        assert space.run(orders_of_day, {"day": day}, spark=perago_spark).result.rows == rows
    first, second = partition(space, FIRST), partition(space, SECOND)

    land(space, FIRST, "id,shop,amount\n1,berlin,99.00\n")
    assert space.run(orders_of_day, {"day": FIRST}, spark=perago_spark).result.rows == 1

    assert partition(space, SECOND) == second
    assert not first.keys() & partition(space, FIRST).keys()
    orders = perago_spark.read.parquet((space.folder / "orders").as_uri())
    found = sorted((row.id, str(row.day)) for row in orders.collect())
    assert found == [(1, FIRST), (4, SECOND), (5, SECOND)]


def test_an_order_that_is_there_twice_is_not_published(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession
) -> None:
    land(perago_workspace, FIRST, "id,shop,amount\n1,berlin,1\n1,berlin,1\n")
    failure = perago_workspace.run(orders_of_day, {"day": FIRST}, spark=perago_spark).failure
    assert failure is not None
    assert failure.code == "PRG-212"
    assert not partition(perago_workspace, FIRST)
