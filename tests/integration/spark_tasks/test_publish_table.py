"""The publish table and the fences, with Spark tasks on real servers and real Parquet."""

from __future__ import annotations

import json

import pytest

from perago import SparkWorkspace
from perago.protocol.outcome import Completed, Failed
from support.real_world import Interfering, Params, Result
from support.spark_world import (
    ALSO_ON_A_CLUSTER,
    CLEAN,
    RealSparkWorld,
    SparkBody,
    clean,
    do_nothing,
)

# The first job of a server loads half of Spark, and the fixture may have to start that server.
pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]

BODIES = pytest.mark.parametrize("body", [clean, do_nothing], ids=["changed", "no-op"])


def complete(world: RealSparkWorld, body: SparkBody, workflow: str | None = None) -> str:
    """Run one attempt that must complete; the output's ref."""
    workflow = workflow or world.start()
    outcome, _ = world.attempt(world.spark_job(body))
    assert isinstance(outcome, Completed), outcome
    task = world.tasks(workflow)[0]
    assert task["status"] == "COMPLETED"
    world.assert_tidy()
    return str(task["outputData"]["workspace"]["ref"])


def fail(world: RealSparkWorld, body: SparkBody, error: str) -> Failed:
    """Run one attempt that must fail and leave the target alone."""
    head, keys = world.history()[0], world.paths()
    workflow = world.start()
    outcome, _ = world.attempt(world.spark_job(body))
    assert isinstance(outcome, Failed), outcome
    assert outcome.reason.startswith(f"{error}: "), outcome.trace
    assert world.tasks(workflow)[0]["status"] == "FAILED"
    assert (world.history()[0], world.paths()) == (head, keys)
    world.assert_tidy()
    return outcome


@ALSO_ON_A_CLUSTER
def test_at_the_input_a_change_is_merged_as_one_commit_on_it(world: RealSparkWorld) -> None:
    before = world.paths()
    ref = complete(world, clean)
    assert world.history()[:2] == [ref, world.ref]
    assert world.rows("data/clean", ref) == CLEAN
    added = set(world.paths(ref)) - set(before)
    assert set(before) < set(world.paths(ref))
    # Neither folder markers nor the committer's working folders are published.
    assert all(key.endswith((".parquet", "/_SUCCESS")) for key in added), added


def test_data_is_committed_in_place_and_never_copied(world: RealSparkWorld) -> None:
    """A committer that renames copies every file on LakeFS; the magic one says who it is."""
    ref = complete(world, clean)
    [success] = [
        item
        for item in world.objects.list(world.repository, ref, "data/clean/")
        if item.key.endswith("/_SUCCESS")
    ]
    pieces = world.objects.read(world.repository, ref, success.key, success.size)
    assert json.loads(b"".join(pieces))["committer"] == "magic"


@ALSO_ON_A_CLUSTER
def test_at_the_input_no_change_completes_with_the_input(world: RealSparkWorld) -> None:
    assert complete(world, do_nothing) == world.ref
    world.assert_at(world.ref)


@ALSO_ON_A_CLUSTER
def test_an_abandoned_publication_is_replaced(world: RealSparkWorld) -> None:
    workflow, abandoned = world.abandon({"data/left.txt": "over"})
    ref = complete(world, clean, workflow)
    assert world.history()[:2] == [ref, world.ref]
    assert "data/left.txt" not in world.paths()
    assert world.rows("data/clean") == CLEAN
    assert abandoned in world.tags().values()


@ALSO_ON_A_CLUSTER
def test_over_an_abandoned_publication_no_change_returns_to_the_input(
    world: RealSparkWorld,
) -> None:
    workflow, abandoned = world.abandon({"data/left.txt": "over"})
    assert complete(world, do_nothing, workflow) == world.ref
    world.assert_at(world.ref)
    assert abandoned in world.tags().values()


@ALSO_ON_A_CLUSTER
@BODIES
def test_a_target_two_commits_on_is_fenced(world: RealSparkWorld, body: SparkBody) -> None:
    world.commit("main", {"data/one.txt": "1"})
    world.commit("main", {"data/two.txt": "2"})
    assert "neither at the input" in fail(world, body, "PublishFenceError").reason


@ALSO_ON_A_CLUSTER
def test_an_attempt_that_became_stale_publishes_nothing(world: RealSparkWorld) -> None:
    workflow = world.start()

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        world.operate("DELETE", f"/workflow/{workflow}")
        return clean(workspace, params)

    outcome, _ = world.attempt(world.spark_job(body))
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("StaleAttemptError: ")
    world.assert_at(world.ref)


@ALSO_ON_A_CLUSTER
def test_a_killed_workers_publication_is_replaced_by_the_retry(world: RealSparkWorld) -> None:
    workflow = world.start()
    first = world.claim()
    assert isinstance(world.run(world.spark_job(clean), first), Completed)
    abandoned = world.history()[0]
    # It never reports; somebody fails the attempt in its place, and Conductor tries again.
    task = world.tasks(workflow)[0]
    update = {
        "workflowInstanceId": workflow,
        "taskId": task["taskId"],
        "status": "FAILED",
        "workerId": first.claim.token,
    }
    world.operate("POST", "/tasks", update)

    def other(workspace: SparkWorkspace, params: Params) -> Result:
        workspace.write(workspace.read("raw").limit(1), "clean")
        return Result()

    outcome, _ = world.attempt(world.spark_job(other))
    assert isinstance(outcome, Completed), outcome
    ref = outcome.output["workspace"]["ref"]
    assert world.history()[:2] == [ref, world.ref]
    assert abandoned in world.tags().values()
    assert len(world.rows("data/clean")) == 1


def test_a_write_that_lands_after_the_commit_is_not_published(world: RealSparkWorld) -> None:
    """Merged is the commit that was checked; what the branch holds by then does not count."""

    def write_more() -> None:
        [branch] = world.branches() - {"main"}
        world.put(branch, "data/late.txt", "late")

    world.start()
    lake = Interfering(world.control, "commit", after=write_more)
    outcome, _ = world.attempt(world.spark_job(clean), lake=lake)
    assert isinstance(outcome, Completed), outcome
    assert "data/late.txt" not in world.paths()
    assert world.rows("data/clean") == CLEAN
