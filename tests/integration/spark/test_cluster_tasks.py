"""A standalone cluster that loses a worker; other tests of Spark tasks run on it as well."""

from __future__ import annotations

import pytest

from support.cluster import StandaloneCluster
from support.spark_world import RealSparkWorld
from support.task_modules.spark_bodies import SLOW_TASKS
from support.waiting import until
from support.workers import WorkerSite

pytestmark = [
    *[pytest.mark.spark, pytest.mark.servers, pytest.mark.slow],
    pytest.mark.timeout(400),
]


def _written(world: RealSparkWorld) -> int:
    """How many tasks of the job on the staging branch have written their part."""
    return sum(
        path.endswith(".pendingset")
        for branch in world.branches() - {"main"}
        for path in world.paths(branch, "data/slow/")
    )


def test_a_cluster_worker_killed_during_a_job_never_half_publishes(
    spark_site: WorkerSite, cluster: StandaloneCluster, cluster_remote: str
) -> None:
    world = spark_site.world
    assert isinstance(world, RealSparkWorld)
    worker = spark_site.start(SPARK_REMOTE=cluster_remote)
    workflow = spark_site.workflow("s_slow", signs=str(spark_site.signs))
    spark_site.await_body()
    until(lambda: _written(world) >= SLOW_TASKS // 6, "the job to write")
    [first, second] = cluster.busy_workers()
    first.kill()
    assert _written(world) < SLOW_TASKS // 2
    tasks = spark_site.finish(workflow, 240)
    # Spark runs the lost tasks again on the worker that is left.
    assert [task["status"] for task in tasks] == ["COMPLETED"], tasks[0]["reasonForIncompletion"]
    assert second.poll() is None
    assert [row["id"] for row in world.rows("data/slow")] == list(range(SLOW_TASKS))
    assert world.history()[:2] == [tasks[0]["outputData"]["workspace"]["ref"], world.ref]
    assert worker.stop() == 0
    world.assert_tidy()
    cluster.start_worker()
    until(lambda: len(cluster.busy_workers()) == 2, "the new worker to get an executor")
