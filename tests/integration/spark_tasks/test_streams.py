"""Streaming into a workspace is refused; what a stream would do is done in batches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from perago import SparkWorkspace
from perago.protocol.outcome import Completed
from support.real_world import Params, Result
from support.spark_world import EVENTS, RealSparkWorld, attempt, refused

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]


def stream(workspace: SparkWorkspace) -> Any:
    source = workspace.spark.readStream.schema("id BIGINT, user STRING, amount BIGINT")
    return source.parquet(workspace.input("raw")).writeStream.trigger(availableNow=True)


@pytest.mark.parametrize("where", ["sink", "checkpoint"])
def test_a_stream_that_writes_into_the_workspace_is_refused_before_it_starts(
    world: RealSparkWorld, tmp_path: Path, where: str
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        inside, outside = workspace.output("stream"), str(tmp_path / "outside")
        sink, checkpoint = (inside, outside) if where == "sink" else (outside, inside)
        query = stream(workspace).option("checkpointLocation", checkpoint).start(sink)
        query.awaitTermination(60)
        return Result()

    outcome = refused(world, body, "UnsupportedOperationError")
    assert "workspace.write" in str(outcome.hint)
    assert not (tmp_path / "outside").exists()


def test_the_log_of_a_stream_is_not_published_however_it_came_there(world: RealSparkWorld) -> None:
    """The setting is not looked at when a query starts; the commit is."""

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        spark = workspace.spark
        spark.conf.set("spark.sql.streaming.checkpointLocation", workspace.output("positions"))
        query = stream(workspace).format("noop").queryName("copied").start()
        assert query.awaitTermination(120)
        [branch] = world.branches() - {"main"}
        world.put(branch, "data/copy/_spark_metadata/0", "v1")
        return Result()

    trace = refused(world, body, "ProjectionError").trace
    assert "'data/copy/_spark_metadata/0'" in trace
    assert "data/positions/copied/offsets/0" in trace


# Spark gives the process of the function ten seconds to start: too few beside other tests.
@pytest.mark.slow
@pytest.mark.alone
def test_a_query_that_failed_unseen_fails_the_attempt(world: RealSparkWorld) -> None:
    """Its function runs on Spark's side, where nobody sees what it wrote."""

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        target = workspace.output("raw")

        def overwrite(batch: Any, _: int) -> None:
            batch.selectExpr("assert_true(id < 0)").write.mode("overwrite").parquet(target)

        query = stream(workspace).foreachBatch(overwrite).queryName("unseen").start()
        deadline = time.monotonic() + 120
        # The batch's own operation may end a moment after its query, and would count as running.
        while query.isActive or workspace.spark.interruptAll():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return Result()

    assert "'streaming query unseen'" in refused(world, body, "FailedWriteError").reason


def load_new(workspace: SparkWorkspace, params: Params) -> Result:
    """What a stream with a checkpoint does: each run takes the files that no run has taken."""
    taken: set[str] = set()
    if any(path.startswith("taken/") for path in workspace.paths()):
        taken = {row.path for row in workspace.read("taken").collect()}
    new = [path for path in workspace.paths() if path.startswith("raw/") and path not in taken]
    if new:
        spark = workspace.spark
        rows = spark.read.parquet(*map(workspace.input, new))
        workspace.write(rows, "loaded", mode="append")
        workspace.write(spark.createDataFrame([(it,) for it in new], "path STRING"), "taken",
                        mode="append")  # fmt: skip
    return Result(note=str(len(new)))


def test_a_batch_that_keeps_its_position_in_the_workspace_loads_each_file_once(
    world: RealSparkWorld,
) -> None:
    def run() -> str:
        outcome = attempt(world, load_new)
        assert isinstance(outcome, Completed), outcome
        world.ref = outcome.output["workspace"]["ref"]
        return str(outcome.output["result"]["note"])

    assert [run(), run()] == ["1", "0"]
    assert world.rows("data/loaded") == EVENTS
    late = {"id": 7, "user": "u7", "amount": 70}
    world.put_table("main", "data/raw/part-1.parquet", [late])
    world.ref = world.commit("main", {})
    assert run() == "1"
    assert world.rows("data/loaded") == [*EVENTS, late]
