"""A good list is published with a warning; a bad one is refused, and the good one stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perago.testing import TaskWorkspace
from write_audit_publish.tasks import publish_prices

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

DATA = Path(__file__).parent / "data"
FILE = "landing/prices.csv"


def land(space: TaskWorkspace, day: str) -> None:
    space.put({FILE: (DATA / day / "catalog" / FILE).read_text()})


def test_a_list_that_is_refused_leaves_the_last_one_in_place(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession
) -> None:
    space = perago_workspace
    land(space, "2026-03-13")
    good = space.run(publish_prices, spark=perago_spark)
    assert good.result.rows == 3
    [warning] = [it.details["message"] for it in good.events if it.action == "guardrail_warned"]
    assert "price" in warning

    land(space, "2026-03-14.refused")
    before = space.files
    failure = space.run(publish_prices, spark=perago_spark).failure
    assert failure is not None
    assert failure.code == "PRG-212"
    # One message names everything that is wrong with the table.
    assert "nulls in sku: 1" in failure.reason
    assert "not unique in 'sku'" in failure.reason
    assert space.files == before
