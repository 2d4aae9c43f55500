"""Add the dew point to readings of sensors."""

from __future__ import annotations

import pandas as pd
from pydantic import BaseModel

from pandas_function.dewpoint import dew_point
from perago import SparkWorkspace, WorkspaceSpec, require_not_null, task


class DewParams(BaseModel):
    """Nothing to choose."""


class DewResult(BaseModel):
    """What was computed."""

    rows: int


@task(
    name="dew_points",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="sensors",
        post=[require_not_null("dew_points", ["sensor", "dew_point"])],
    ),
)
def dew_points(workspace: SparkWorkspace, params: DewParams) -> DewResult:
    """Compute the dew point of every whole reading, column by column."""
    from pyspark.sql.functions import pandas_udf  # a worker that only registers needs no Spark

    # Spark reads the types: columns come, and a column goes.
    def compute(celsius: pd.Series, humidity: pd.Series) -> pd.Series:
        return dew_point(celsius, humidity)

    column = pandas_udf(compute, "double")
    readings = workspace.read(
        "readings",
        format="csv",
        schema="sensor STRING, celsius DOUBLE, humidity DOUBLE",
        header=True,
    ).dropna()
    computed = readings.withColumn("dew_point", column("celsius", "humidity"))
    workspace.write(computed, "dew_points")
    return DewResult(rows=readings.count())
