"""A model is trained and used; one that is not good enough is not published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from model_training.tasks import forecast_sales, train_sales_model
from perago.testing import TaskWorkspace

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

DATA = Path(__file__).parent / "data" / "2026-03-13" / "shop"


def land(space: TaskWorkspace) -> None:
    files = (path for path in DATA.rglob("*.csv"))
    space.put({path.relative_to(DATA).as_posix(): path.read_text() for path in files})


def test_a_forecast_uses_the_model_of_its_commit(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession
) -> None:
    space = perago_workspace
    land(space)
    trained = space.run(train_sales_model, spark=perago_spark).result
    assert trained.rows == 8
    assert trained.error < 10
    forecast = space.run(forecast_sales, spark=perago_spark).result
    assert forecast.sold == [pytest.approx(105, abs=10), pytest.approx(206, abs=10)]


def test_a_model_that_is_not_good_enough_is_not_published(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession
) -> None:
    land(perago_workspace)
    before = perago_workspace.files
    run = perago_workspace.run(train_sales_model, {"regularization": 1000}, spark=perago_spark)
    assert run.failure is not None
    assert run.failure.code == "PRG-212"
    assert "the error is" in run.failure.reason
    assert perago_workspace.files == before
