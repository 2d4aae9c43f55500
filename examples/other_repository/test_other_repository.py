"""The other repository is a folder here; without one of its shops, nothing is published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from other_repository.tasks import revenue_by_country
from perago.testing import run_task

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

HERE = Path(__file__).parent
SALES = HERE / "data" / "2026-03-13" / "sales"
DIMS = HERE / "inputs" / "dims" / "tables"


def test_revenue_is_added_up_by_country(perago_spark: SparkSession) -> None:
    run = run_task(revenue_by_country, SALES, spark=perago_spark, inputs={"dims": DIMS})
    assert run.result.revenue == {"DE": 32.75, "FR": 18.0}
    assert all(path.startswith("by_country/") for path in run.diff.added)


def test_a_shop_that_nobody_knows_is_not_published(perago_spark: SparkSession) -> None:
    dims = {"shops/shops.csv": "shop,country\nberlin,DE\n"}
    run = run_task(revenue_by_country, SALES, spark=perago_spark, inputs={"dims": dims})
    assert run.failure is not None
    assert run.failure.code == "PRG-212"
