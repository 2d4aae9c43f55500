"""A Spark task: the revenue of every day and shop, from a table of orders."""

from __future__ import annotations

from pydantic import BaseModel, Field

from perago import (
    SparkWorkspace,
    TaskFailed,
    WorkspaceSpec,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
    task,
)


class RevenueParams(BaseModel):
    """Which orders count."""

    smallest: float = Field(0.0, ge=0, description="Orders below this amount are left out.")


class RevenueResult(BaseModel):
    """What was written."""

    rows: int
    revenue: float


@task(
    name="daily_revenue",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="sales",
        pre=[
            require_schema("orders", "id BIGINT, shop STRING, day STRING, amount DOUBLE"),
            require_not_null("orders", ["id", "shop", "day"]),
        ],
        post=[
            require_rows("revenue", min=1),
            require_unique("revenue", ["day", "shop"]),
        ],
    ),
)
def daily_revenue(workspace: SparkWorkspace, params: RevenueParams) -> RevenueResult:
    """Add up the orders of every day and shop."""
    orders = workspace.read("orders").where(f"amount >= {params.smallest}")
    revenue = orders.groupBy("day", "shop").agg({"amount": "sum"})
    workspace.write(revenue.withColumnRenamed("sum(amount)", "revenue"), "revenue")
    # What was just written is on the output's branch, and the input has not changed.
    written = workspace.spark.read.parquet(workspace.output("revenue"))
    rows, total = written.selectExpr("count(*)", "coalesce(sum(revenue), 0D)").collect()[0]
    if not rows:
        raise TaskFailed(f"no order of at least {params.smallest}")
    return RevenueResult(rows=rows, revenue=total)
