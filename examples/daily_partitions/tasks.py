"""Put the orders of a day into their partition."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel

from perago import SparkWorkspace, WorkspaceSpec, require_not_null, require_unique, task


class DayParams(BaseModel):
    """Which day to load."""

    day: date


class DayResult(BaseModel):
    """What the partition of the day holds now."""

    rows: int


@task(
    name="orders_of_day",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="sales",
        post=[require_not_null("orders", ["id", "day"]), require_unique("orders", ["id", "day"])],
    ),
)
def orders_of_day(workspace: SparkWorkspace, params: DayParams) -> DayResult:
    """Replace the orders of one day, and leave all other days as they are."""
    landed = workspace.read(
        f"landing/{params.day}",
        format="csv",
        schema="id BIGINT, shop STRING, amount DOUBLE",
        header=True,
    )
    orders = landed.selectExpr("*", f"DATE '{params.day}' AS day")
    workspace.write(orders, "orders", mode="overwrite_partitions", partition_by=["day"])
    return DayResult(rows=orders.count())
