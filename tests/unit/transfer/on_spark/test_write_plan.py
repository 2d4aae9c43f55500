"""A plan that was made in the worker's process, as tables for the tasks that stage it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago.transfer.on_spark.plan import SparkPlan, write_plan
from perago.transfer.partition import Bounds
from perago.transfer.plan import SyncPlan, Upload
from perago.transfer.scan import StatRecord

BOUNDS = Bounds(objects=3, size=100)


def upload(number: int, size: int) -> Upload:
    record = StatRecord(size, 1_000 + number, 2_000 + number, 3_000 + number)
    metadata = {"who": f"person {number}"} if number % 2 else {}
    return Upload(f"f{number:02}", f"p/f{number:02}", record, "text/plain", metadata)


def written(sizes: list[int], tables: Path, deletes: int = 0) -> tuple[SyncPlan, SparkPlan]:
    uploads = tuple(upload(number, size) for number, size in enumerate(sizes))
    plan = SyncPlan(uploads, tuple(f"p/d{number:02}" for number in range(deletes)), unchanged=7)
    return plan, write_plan(plan, tables, BOUNDS)


@pytest.mark.parametrize(
    ("sizes", "partitions"),
    [
        ([], 0),
        ([1], 1),
        ([1, 1, 1], 1),
        ([1, 1, 1, 1], 2),
        # One is larger than any partition: it is alone, and the partition before is filled up.
        ([1, 500, 1, 1, 1], 3),
        ([0] * 31, 11),
    ],
)
def test_each_part_is_a_partition_of_its_own(
    sizes: list[int], partitions: int, tmp_path: Path
) -> None:
    plan, tables = written(sizes, tmp_path, deletes=5)
    assert tables.collect() == plan
    assert tables.summary() == plan.summary()
    assignment = tables.uploads.assign(BOUNDS)
    assert assignment.partitions == partitions
    assert assignment.is_by_part


def test_small_partitions_between_large_objects_are_put_together(tmp_path: Path) -> None:
    plan, tables = written([90, 20, 90, 20], tmp_path)
    assert tables.collect() == plan
    assignment = tables.uploads.assign(BOUNDS)
    assert (len(tables.uploads.parts), assignment.partitions) == (4, 3)
    assert not assignment.is_by_part


def test_a_part_of_several_partitions_is_not_one(tmp_path: Path) -> None:
    _, tables = written([], tmp_path, deletes=6)
    assert tables.deletes.assign(BOUNDS).partitions == 2
    assert not tables.deletes.assign(BOUNDS).is_by_part
    assert tables.deletes.assign(Bounds()).is_by_part
