"""Publish the price list, if it is one."""

from __future__ import annotations

from pydantic import BaseModel

from perago import (
    GuardrailViolation,
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    WorkspaceSpec,
    require_not_null,
    require_rows,
    require_schema,
    require_unique,
    task,
)


class PriceParams(BaseModel):
    """Nothing to choose."""


class PriceResult(BaseModel):
    """How long the list is."""

    rows: int


def require_positive_prices(workspace: SparkWorkspace) -> None:
    """Refuse prices that no product has; a guardrail of the author's own is a function."""
    wrong = workspace.read("prices").where("price <= 0").count()
    if wrong:
        raise GuardrailViolation(f"{wrong} prices are not above zero")


@task(
    name="publish_prices",
    owner_email="data@example.com",
    # The same rows would break the same guardrails again.
    controls=TaskControls(retry=RetryPolicy(count=0)),
    workspace=WorkspaceSpec(
        prefix="catalog",
        post=[
            # All of one table in one pass.
            require_schema("prices", "sku BIGINT, name STRING, price DECIMAL(10,2)"),
            require_rows("prices", min=1),
            require_not_null("prices", "sku"),
            require_unique("prices", "sku"),
            # Recorded with the commit, and no reason to keep the other prices back.
            require_not_null("prices", "price", severity="warn"),
            require_positive_prices,
        ],
    ),
)
def publish_prices(workspace: SparkWorkspace, params: PriceParams) -> PriceResult:
    """Write the price list; the guardrails audit the commit before it is published."""
    prices = workspace.read(
        "landing/prices.csv",
        format="csv",
        schema="sku BIGINT, name STRING, price DECIMAL(10,2)",
        header=True,
    )
    workspace.write(prices, "prices")
    return PriceResult(rows=prices.count())
