"""Train a model of sales, publish it beside its data, and use it for a forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from perago import (
    GuardrailViolation,
    SparkWorkspace,
    WorkspaceSpec,
    require_glob,
    require_not_null,
    require_rows,
    task,
)

if TYPE_CHECKING:
    from pyspark.sql.connect.dataframe import DataFrame

FEATURES = ["visits", "price"]
LARGEST_ERROR = 10.0


class TrainParams(BaseModel):
    """How the model is trained."""

    regularization: float = Field(0.0, ge=0)


class TrainResult(BaseModel):
    """How good the model is, on the data that it was trained on."""

    rows: int
    error: float


class ForecastParams(BaseModel):
    """Nothing to choose."""


class ForecastResult(BaseModel):
    """What is expected to be sold."""

    sold: list[float]


def require_good_model(workspace: SparkWorkspace) -> None:
    """Refuse a model whose error is too large; the last good one stays published."""
    [row] = workspace.read("model/quality").collect()
    if row.error > LARGEST_ERROR:
        raise GuardrailViolation(f"the error is {row.error:.1f}, more than {LARGEST_ERROR}")


def read_days(workspace: SparkWorkspace, path: str, *more: str) -> DataFrame:
    """Read a folder of CSV files, with the features as one vector."""
    from pyspark.ml.feature import VectorAssembler

    columns = ", ".join(f"{name} DOUBLE" for name in (*FEATURES, *more))
    days = workspace.read(path, format="csv", schema=columns, header=True)
    found: DataFrame = VectorAssembler(inputCols=FEATURES, outputCol="features").transform(days)
    return found


@task(
    name="train_sales_model",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="shop",
        pre=[require_glob("history/*.csv")],
        post=[require_glob("model/regression/metadata/*"), require_good_model],
    ),
)
def train_sales_model(workspace: SparkWorkspace, params: TrainParams) -> TrainResult:
    """Fit a linear regression and write it with its quality."""
    from pyspark.ml.regression import LinearRegression

    history = read_days(workspace, "history", "sold")
    regression = LinearRegression(labelCol="sold", regParam=params.regularization)
    model = regression.fit(history)
    model.write().overwrite().save(workspace.output("model/regression"))
    predicted = model.transform(history)
    error = "sqrt(avg(pow(sold - prediction, 2))) AS error"
    quality = predicted.selectExpr("count(*) AS rows", error)
    workspace.write(quality, "model/quality")
    [row] = quality.collect()
    return TrainResult(rows=row.rows, error=row.error)


@task(
    name="forecast_sales",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="shop",
        pre=[require_glob("model/regression/metadata/*")],
        post=[require_rows("forecast", min=1), require_not_null("forecast", "sold")],
    ),
)
def forecast_sales(workspace: SparkWorkspace, params: ForecastParams) -> ForecastResult:
    """Apply the model that is in the same commit as the plans."""
    from pyspark.ml.regression import LinearRegressionModel

    model = LinearRegressionModel.load(workspace.input("model/regression"))
    predicted = model.transform(read_days(workspace, "plans"))
    forecast = predicted.selectExpr(*FEATURES, "prediction AS sold")
    workspace.write(forecast, "forecast")
    return ForecastResult(sold=[round(row.sold, 1) for row in forecast.orderBy("sold").collect()])
