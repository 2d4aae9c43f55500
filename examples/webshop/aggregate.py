"""Aggregate, a Spark task: what was looked at and sold in each hour, and how far visits came."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel, Field

from perago import (
    SparkWorkspace,
    WorkspaceSpec,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
    task,
)
from webshop.clean import EVENT

HOURLY = (
    "hour INT, category STRING, views BIGINT, carts BIGINT, purchases BIGINT, "
    "revenue_cents BIGINT, day DATE"
)
FUNNEL = "country STRING, sessions BIGINT, with_cart BIGINT, with_purchase BIGINT, day DATE"


class AggregateParams(BaseModel):
    """Which day."""

    day: date = Field(description="The day to add up.")


class AggregateResult(BaseModel):
    """The day in four numbers."""

    sessions: int = Field(description="Visits of people.")
    carts: int = Field(description="Visits that put something into the cart.")
    orders: int = Field(description="Visits that bought something.")
    revenue_cents: int = Field(description="What they paid.")


@task(
    name="aggregate_sales",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        pre=[require_schema("clean/events", EVENT), require_rows("clean/events", min=1)],
        post=[
            require_schema("marts/hourly", HOURLY),
            require_unique("marts/hourly", ["day", "hour", "category"]),
            require_not_null("marts/hourly", ["hour", "category", "revenue_cents"]),
            require_schema("marts/funnel", FUNNEL),
            require_rows("marts/funnel", min=1),
        ],
    ),
)
def aggregate_sales(workspace: SparkWorkspace, params: AggregateParams) -> AggregateResult:
    """Add up a day by hour and category, and its visits by country."""
    workspace.spark.conf.set("spark.sql.session.timeZone", "UTC")
    events = workspace.read(f"clean/events/day={params.day}")
    by_hour = workspace.spark.sql(
        """
        SELECT hour(at) AS hour, category,
               count_if(kind = 'view') AS views,
               count_if(kind = 'cart') AS carts,
               count_if(kind = 'purchase') AS purchases,
               coalesce(sum(price_cents * quantity) FILTER (WHERE kind = 'purchase'), 0)
                   AS revenue_cents
        FROM {events} GROUP BY hour(at), category
        """,
        events=events,
    )
    by_country = workspace.spark.sql(
        """
        SELECT country, count(*) AS sessions,
               count_if(carted) AS with_cart, count_if(bought) AS with_purchase
        FROM (SELECT first(country) AS country,
                     bool_or(kind = 'cart') AS carted, bool_or(kind = 'purchase') AS bought
              FROM {events} GROUP BY session)
        GROUP BY country
        """,
        events=events,
    )
    tables = {"hourly": by_hour, "funnel": by_country}
    written = {}
    for name, table in tables.items():
        workspace.write(table.coalesce(1), f"marts/{name}/day={params.day}")
        written[name] = workspace.spark.read.parquet(
            workspace.output(f"marts/{name}/day={params.day}")
        )
    # Asked of what was written, which takes no second pass over the events.
    [totals] = workspace.spark.sql(
        """
        SELECT sum(sessions) AS sessions, sum(with_cart) AS carts, sum(with_purchase) AS orders,
               (SELECT sum(revenue_cents) FROM {hourly}) AS revenue_cents
        FROM {funnel}
        """,
        **written,
    ).collect()
    return AggregateResult(**totals.asDict())
