"""Add up revenue by country; which shop is where is kept in another repository."""

from __future__ import annotations

from pydantic import BaseModel

from perago import InputSpec, SparkWorkspace, WorkspaceSpec, require_not_null, task


class CountryParams(BaseModel):
    """Nothing to choose."""


class CountryResult(BaseModel):
    """The revenue of each country."""

    revenue: dict[str, float]


@task(
    name="revenue_by_country",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="sales",
        inputs={"dims": InputSpec(prefix="tables")},
        # A shop that the other repository does not know.
        post=[require_not_null("by_country", "country")],
    ),
)
def revenue_by_country(workspace: SparkWorkspace, params: CountryParams) -> CountryResult:
    """Join the revenue of this repository with the shops of another."""
    revenue = workspace.read(
        "revenue", format="csv", schema="shop STRING, revenue DOUBLE", header=True
    )
    shops = workspace.read(
        "shops", source="dims", format="csv", schema="shop STRING, country STRING", header=True
    )
    joined = revenue.join(shops, "shop", "left")
    totals = joined.groupBy("country").agg({"revenue": "sum"}).toDF("country", "revenue")
    workspace.write(totals, "by_country")
    written = workspace.spark.read.parquet(workspace.output("by_country"))
    return CountryResult(revenue={str(row.country): row.revenue for row in written.collect()})
