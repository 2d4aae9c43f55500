"""The main tests of Spark tasks again on a standalone cluster, which also loses a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.world import Servers
from integration.spark.cluster import StandaloneCluster
from integration.spark_tasks.spark_bodies import SLOW_TASKS
from integration.spark_tasks.test_data_guardrails import (
    test_a_broken_one_after_the_body_publishes_nothing,
    test_they_run_on_the_input_and_on_the_staged_commit,
)
from integration.spark_tasks.test_life_cycle import (
    test_a_job_left_running_is_interrupted_and_its_leftovers_are_removed,
    test_a_table_written_outside_the_prefix_is_refused,
    test_overwriting_the_input_of_the_same_task_is_fine,
)
from integration.spark_tasks.test_publish_table import (
    test_a_killed_workers_publication_is_replaced_by_the_retry,
    test_a_target_two_commits_on_is_fenced,
    test_an_abandoned_publication_is_replaced,
    test_an_attempt_that_became_stale_publishes_nothing,
    test_at_the_input_a_change_is_merged_as_one_commit_on_it,
    test_at_the_input_no_change_completes_with_the_input,
    test_over_an_abandoned_publication_no_change_returns_to_the_input,
)
from integration.spark_tasks.world import SparkWorld
from integration.worker.harness import WorkerSite, until

# Collected here too, with this module's world.
__all__ = [
    "test_a_broken_one_after_the_body_publishes_nothing",
    "test_a_job_left_running_is_interrupted_and_its_leftovers_are_removed",
    "test_a_killed_workers_publication_is_replaced_by_the_retry",
    "test_a_table_written_outside_the_prefix_is_refused",
    "test_a_target_two_commits_on_is_fenced",
    "test_an_abandoned_publication_is_replaced",
    "test_an_attempt_that_became_stale_publishes_nothing",
    "test_at_the_input_a_change_is_merged_as_one_commit_on_it",
    "test_at_the_input_no_change_completes_with_the_input",
    "test_over_an_abandoned_publication_no_change_returns_to_the_input",
    "test_overwriting_the_input_of_the_same_task_is_fine",
    "test_they_run_on_the_input_and_on_the_staged_commit",
]
pytestmark = [pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(400)]


@pytest.fixture
def world(servers: Servers, cluster_remote: str, tmp_path: Path) -> SparkWorld:
    return SparkWorld(servers, tmp_path / "workspaces", remote=cluster_remote)


def _written(world: SparkWorld) -> int:
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
    assert isinstance(world, SparkWorld)
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
