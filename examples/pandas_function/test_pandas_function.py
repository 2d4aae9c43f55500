"""The package by itself, and the task with the package on Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from pandas_function.dewpoint import dew_point
from pandas_function.tasks import dew_points
from perago.testing import TaskWorkspace

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

HERE = Path(__file__).parent
DATA = HERE / "data" / "2026-03-13" / "sensors"


def test_the_dew_point_of_wet_air_is_its_temperature() -> None:
    found = dew_point(pd.Series([20.0, 25.0]), pd.Series([50.0, 100.0]))
    assert list(found) == [pytest.approx(9.26, abs=0.01), pytest.approx(25.0)]


def test_readings_that_are_not_whole_are_left_out(
    perago_workspace: TaskWorkspace, perago_spark: SparkSession, tmp_path: Path
) -> None:
    package = shutil.make_archive(str(tmp_path / "modules"), "zip", HERE.parent, HERE.name)
    perago_spark.addArtifacts(package, pyfile=True)
    file = "readings/2026-03-13.csv"
    perago_workspace.put({file: (DATA / file).read_text()})
    assert perago_workspace.run(dew_points, spark=perago_spark).result.rows == 2
    written = perago_spark.read.parquet((perago_workspace.folder / "dew_points").as_uri())
    found = sorted(round(row.dew_point, 2) for row in written.collect())
    assert found == [9.26, 25.0]
