"""Tasks that Spark runs twice, on a standalone cluster: each row is published once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perago import SparkWorkspace
from perago.connections import LakeFSConnection
from perago.protocol.outcome import Completed
from perago.servers.spark import ConnectSettings
from support.cluster import StandaloneCluster
from support.connect import Serve
from support.real_world import Params, Result
from support.spark_world import RealSparkWorld, attempt

pytestmark = [
    *[pytest.mark.spark, pytest.mark.servers, pytest.mark.slow],
    pytest.mark.timeout(400),
]

# A task that is hardly slower than the others counts as a straggler.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
ROWS, TASKS = 40_000, 4
Function = Callable[[Iterator[Any]], Iterator[Any]]


@pytest.fixture(scope="module")
def speculating_remote(
    cluster: StandaloneCluster, serve: Serve, connection: LakeFSConnection
) -> Iterator[str]:
    conf = {**cluster.conf, **SPECULATION}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(cluster.python))
        yield serve(ConnectSettings("speculating", connection, cluster.url, conf)).remote


def hindered(marks: str, how: str) -> Function:
    """Copy rows; the first run of the first task gives all of its own and is then in trouble.

    Executors have no modules of the tests, so all of it is in one function, without ``assert``.
    """

    def copy(batches: Iterator[Any]) -> Iterator[Any]:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        context: Any = TaskContext.get()
        run = f"{context.partitionId()}-{context.attemptNumber()}"
        Path(marks, f"began-{run}").touch()
        yield from batches
        if run == "0-0" and how == "fails":
            raise RuntimeError("the first run fails")
        end = time.monotonic() + 120
        while run == "0-0" and time.monotonic() < end:
            if how == "ends beside its copy" and Path(marks, "ended-0-1").exists():
                break
            time.sleep(0.01)
        Path(marks, f"ended-{run}").touch()

    return copy


@pytest.mark.parametrize("world", ["speculating_remote"], indirect=True)
@pytest.mark.parametrize("how", ["is overtaken", "ends beside its copy", "fails"])
def test_a_task_that_runs_twice_writes_its_rows_once(
    world: RealSparkWorld, tmp_path: Path, how: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        rows = workspace.spark.range(0, ROWS, numPartitions=TASKS)
        workspace.write(rows.mapInPandas(hindered(str(marks), how), "id long"), "copy")
        return Result()

    outcome = attempt(world, body)
    assert isinstance(outcome, Completed), outcome
    runs = {mark.name for mark in marks.iterdir()}
    assert {"began-0-0", "began-0-1", "ended-0-1"} <= runs
    # Of two runs that end at once, either may win; else the second one did.
    assert "ended-0-0" not in runs or how == "ends beside its copy"
    assert [row["id"] for row in world.rows("data/copy")] == list(range(ROWS))
    files = [path for path in world.paths(prefix="data/copy/") if not path.endswith("/_SUCCESS")]
    assert len(files) == TASKS
    world.assert_at(outcome.output["workspace"]["ref"])
