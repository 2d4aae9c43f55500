"""Inputs from another repository, read by Spark and as files; the rules are tested in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from perago import SparkWorkspace
from perago.protocol.job import InputUse, Job
from perago.protocol.outcome import Completed
from support.real_world import Params, Result, Servers
from support.spark_world import ALSO_ON_A_CLUSTER, RealSparkWorld

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def dims(servers: Servers, tmp_path: Path) -> RealSparkWorld:
    """Another repository, whose branch moves on after its commit was pinned."""
    other = RealSparkWorld(servers, tmp_path / "other")
    other.put_table("main", "tables/names/part-0.parquet", [{"user": "u1", "name": "Ada"}])
    other.ref = other.commit("main", {})
    other.put_table("main", "tables/names/part-0.parquet", [{"user": "u1", "name": "Eve"}])
    other.commit("main", {})
    return other


def run(world: RealSparkWorld, dims: RealSparkWorld, job: Job) -> None:
    assert job.workspace is not None
    use = replace(job.workspace, inputs={"dims": InputUse("tables", dims.repository)})
    payload: dict[str, Any] = {"workspace": world.workspace(), "params": {}}
    world.start({**payload, "inputs": {"dims": dims.workspace()}})
    outcome, _ = world.attempt(replace(job, workspace=use))
    assert isinstance(outcome, Completed), outcome
    recorded = world.control.get_head(world.repository, "main").metadata["perago.inputs"]
    assert json.loads(recorded)["dims"]["ref"] == dims.ref


@ALSO_ON_A_CLUSTER
def test_spark_reads_a_table_of_another_repository_at_its_commit(
    world: RealSparkWorld, dims: RealSparkWorld
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        names = workspace.read("names", source="dims")
        workspace.write(workspace.read("raw").join(names, "user").select("id", "name"), "named")
        return Result()

    run(world, dims, world.spark_job(body))
    assert world.rows("data/named") == [{"id": 1, "name": "Ada"}, {"id": 4, "name": "Ada"}]


def test_a_file_task_has_the_files_of_another_repository_in_a_folder(
    world: RealSparkWorld, dims: RealSparkWorld
) -> None:
    def body(data: Path, params: Params, inputs: Mapping[str, Path]) -> Result:
        [row] = pq.read_table(inputs["dims"] / "names" / "part-0.parquet").to_pylist()
        (data / "name.txt").write_text(row["name"])
        return Result()

    run(world, dims, world.job(body))  # type: ignore[arg-type]
    content = world.sdk.objects_api.get_object(world.repository, "main", "data/name.txt")
    assert bytes(content) == b"Ada"
    world.assert_tidy()
