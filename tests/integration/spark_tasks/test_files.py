"""Files for Spark reach the body and functions on Spark, here and on a cluster."""

from __future__ import annotations

import importlib
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perago import SparkWorkspace
from perago.protocol.job import Ports
from perago.protocol.outcome import Completed
from perago.protocol.ports import Lake
from perago.spark.client import SparkClient
from perago.spark.executions import ConnectExecutions
from perago.spark.files import SparkFiles
from support.real_world import Params, Result
from support.spark_world import ALSO_ON_A_CLUSTER, RealSparkWorld, attempt

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

MODULE = "perago_files_of_a_test"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkFiles:
    modules, words = tmp_path / "libs.zip", tmp_path / "words.zip"
    with zipfile.ZipFile(modules, "w") as bundle:
        bundle.writestr(f"{MODULE}.py", "def double(number):\n    return 2 * number\n")
    with zipfile.ZipFile(words, "w") as bundle:
        bundle.writestr("bonus.txt", "100")
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = SparkFiles((str(modules),), (f"{words}#words",))
    found.make_importable()
    return found


def body(workspace: SparkWorkspace, params: Params) -> Result:
    double = importlib.import_module(MODULE).double  # by its name: it is not there for mypy

    def changed(rows: Any) -> Any:
        bonus = int(Path("words", "bonus.txt").read_text())
        for frame in rows:
            yield frame.assign(amount=frame["amount"].map(double) + bonus)

    events = workspace.read("raw")
    workspace.write(events.mapInPandas(changed, events.schema), "clean")
    return Result(note=str(double(21)))


@ALSO_ON_A_CLUSTER
def test_a_function_imports_a_module_and_reads_an_archive(
    world: RealSparkWorld, files: SparkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SparkClient(lambda: world.remote, (), (), files)
    given = world.ports

    def ports(lake: Lake | None = None) -> Ports:
        found = given(lake)
        assert found.storage is not None
        assert found.storage.spark is not None
        spark = replace(
            found.storage.spark, executions=ConnectExecutions(world.objects, client.open)
        )
        return replace(found, storage=replace(found.storage, spark=spark))

    monkeypatch.setattr(world, "ports", ports)
    outcome = attempt(world, body)
    assert isinstance(outcome, Completed), outcome
    assert outcome.output["result"]["note"] == "42"
    amounts = [row["amount"] for row in world.rows("data/clean")]
    assert sorted(amounts) == [100 + 20 * number for number in range(6)]
