"""What a Spark task may leave behind, write and read: section 9 on real servers."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from perago import (
    SparkWorkspace,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
)
from perago.errors import GuardrailViolation
from perago.protocol.outcome import Completed, Failed
from perago.spark.session import end_session, open_session
from perago.tasks.guardrails import Guardrail
from perago.wiring.spark_probe import probe
from support.real_world import Params, Result
from support.spark_world import (
    ALSO_ON_A_CLUSTER,
    CLEAN,
    EVENTS,
    RealSparkWorld,
    SparkBody,
    attempt,
    clean,
    do_nothing,
    refused,
)

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]

# Forty tasks of two seconds each: long enough to be found running on any machine.
_SLOW = "java_method('java.lang.Thread', 'sleep', cast(2000 AS BIGINT)) AS slept"
# A job id of the form that Spark gives.
JOB = "3f8f2f0e-7a52-4c6b-9d0c-0f1d9c1f5a10"


def start_slow_write(workspace: SparkWorkspace, path: str) -> threading.Thread:
    """Begin a job on a thread and return when it has begun to write."""
    target = workspace.output(path)

    def write() -> None:
        try:
            frame = workspace.spark.range(0, 40, 1, 40).selectExpr("id", _SLOW)
            frame.write.parquet(target)
        except Exception as error:  # noqa: BLE001  interrupted, which is the point
            ended.append(error)

    ended: list[Exception] = []
    thread = threading.Thread(target=write)
    thread.start()
    return thread


def await_key(world: RealSparkWorld, part: str) -> None:
    """Until some key with ``part`` in it is on the staging branch."""
    for _ in range(300):
        for branch in world.branches() - {"main"}:
            if any(part in key for key in world.paths(branch)):
                return
        time.sleep(0.1)
    raise AssertionError(f"{part} never appeared")


@ALSO_ON_A_CLUSTER
def test_a_job_left_running_is_interrupted_and_fails_the_attempt(world: RealSparkWorld) -> None:
    threads: list[threading.Thread] = []

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        clean(workspace, params)
        threads.append(start_slow_write(workspace, "slow"))
        await_key(world, "/slow/__magic")
        return Result()

    failed = refused(world, body, "UnfinishedOperationError")
    assert "1 of its Spark operations" in failed.reason
    threads[0].join(timeout=30)
    assert not threads[0].is_alive()
    world.assert_tidy()


def test_a_streaming_query_left_running_is_stopped_and_fails_the_attempt(
    world: RealSparkWorld,
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        clean(workspace, params)
        rates = workspace.spark.readStream.format("rate").load()
        rates.writeStream.format("memory").queryName(f"rates_{world.repository[-6:]}").start()
        return Result()

    refused(world, body, "UnfinishedOperationError")
    world.assert_tidy()


def test_finished_jobs_and_streams_do_not_fail_the_attempt(world: RealSparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        clean(workspace, params)
        thread = threading.Thread(target=workspace.spark.range(10).collect)
        thread.start()
        thread.join(60)
        next(iter(workspace.spark.range(1000).toLocalIterator()))
        rates = workspace.spark.readStream.format("rate").load()
        sink = rates.writeStream.format("memory").queryName(f"rates_{world.repository[-6:]}")
        sink.start().stop()
        return Result()

    outcome = attempt(world, body)
    assert isinstance(outcome, Completed), outcome
    assert world.rows("data/clean") == CLEAN


def test_a_busy_spark_passes_the_check_at_start(world: RealSparkWorld) -> None:
    session = open_session(world.remote, uuid.uuid4().hex)
    failures: list[Exception] = []

    def occupy() -> None:
        try:
            session.range(0, 400, 1, 400).selectExpr("id", _SLOW).collect()
        except Exception as error:  # noqa: BLE001  interrupted at the end
            failures.append(error)

    thread = threading.Thread(target=occupy)
    thread.start()
    time.sleep(3.0)
    try:
        assert probe(world.remote) == []
        assert thread.is_alive(), failures
    finally:
        end_session(session)
        thread.join(timeout=60)


def test_a_body_that_fails_has_its_jobs_interrupted(world: RealSparkWorld) -> None:
    threads: list[threading.Thread] = []

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        threads.append(start_slow_write(workspace, "slow"))
        await_key(world, "/slow/__magic")
        raise ValueError("no")

    refused(world, body, "ValueError")
    threads[0].join(timeout=30)
    assert not threads[0].is_alive()


def test_leftovers_of_other_committers_are_removed_but_never_those_of_the_input(
    world: RealSparkWorld,
) -> None:
    world.ref = world.commit("main", {"data/old/_temporary/0/x": "was there before"})
    left = {"data/clean/_temporary/0/x", f"data/.spark-staging-{JOB}/y"}

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        clean(workspace, params)
        [branch] = world.branches() - {"main"}
        for key in (*left, "data/t/_delta_log/z", "data/_temporary_results/x"):
            world.put(branch, key, "left")
        return Result()

    assert isinstance(attempt(world, body), Completed)
    paths = set(world.paths())
    assert {"data/old/_temporary/0/x", "data/t/_delta_log/z", "data/_temporary_results/x"} < paths
    assert not left & paths


@pytest.mark.parametrize("key", ["other/mine.txt", "_lakefs_actions/mine.yaml"])
def test_a_write_outside_the_prefix_is_refused(world: RealSparkWorld, key: str) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        [branch] = world.branches() - {"main"}
        world.put(branch, key, "name: mine\non:\n  pre-merge:\nhooks: []\n")
        return Result()

    outcome = refused(world, body, "ProjectionError")
    assert repr(key) in outcome.reason


@ALSO_ON_A_CLUSTER
def test_a_table_written_outside_the_prefix_is_refused(world: RealSparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        outside = workspace.output().rpartition("/")[0] + "/elsewhere"
        workspace.read("raw").write.parquet(outside)
        return Result()

    assert "'elsewhere/_SUCCESS'" in refused(world, body, "ProjectionError").trace


@ALSO_ON_A_CLUSTER
def test_overwriting_the_input_of_the_same_task_is_fine(world: RealSparkWorld) -> None:
    """Input and output are different refs: nothing is read that was just overwritten."""

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        workspace.write(workspace.read("raw").where("id < 2"), "raw")
        return Result()

    assert isinstance(attempt(world, body), Completed)
    assert world.rows("data/raw") == EVENTS[:2]
    assert world.rows("data/raw", world.ref) == EVENTS


def test_a_read_only_task_reads_and_has_no_output(world: RealSparkWorld) -> None:
    def count(workspace: SparkWorkspace, params: Params) -> Result:
        assert world.branches() == {"main"}
        return Result(note=str(workspace.read("raw").count()))

    world.commit("main", {"data/one.txt": "1"})
    world.commit("main", {"data/two.txt": "2"})
    head = world.history()[0]
    outcome = attempt(world, count, read_only=True)
    assert isinstance(outcome, Completed), outcome
    assert outcome.output == {
        "workspace": world.workspace(),
        "result": {"note": str(len(EVENTS))},
    }
    world.assert_at(head)
    failure = attempt(world, clean, read_only=True)
    assert isinstance(failure, Failed)
    assert "has no output" in failure.reason
    world.assert_at(head)


HOLD: list[Guardrail] = [
    require_dir("raw"),
    require_glob("raw/*.parquet", max_count=1),
    forbid_glob("**/*.tmp"),
]


def test_listing_guardrails_see_the_input_and_then_the_staged_commit(world: RealSparkWorld) -> None:
    pre: list[Guardrail] = [*HOLD, forbid_glob("clean/**")]
    post: list[Guardrail] = [*HOLD, require_file("clean/_SUCCESS")]
    outcome = attempt(world, clean, pre=pre, post=post)
    assert isinstance(outcome, Completed), outcome


def test_a_pre_violation_is_terminal(world: RealSparkWorld) -> None:
    outcome = refused(world, clean, "PreGuardrailViolation", pre=[require_file("missing")])
    assert outcome.disposition.value == "FAILED_WITH_TERMINAL_ERROR"


@pytest.mark.parametrize("body", [clean, do_nothing], ids=["changed", "no-op"])
def test_a_post_violation_publishes_nothing(world: RealSparkWorld, body: SparkBody) -> None:
    def never(workspace: SparkWorkspace) -> None:
        workspace.read("raw").count()
        raise GuardrailViolation("never")

    outcome = refused(world, body, "PostGuardrailViolation", post=[never])
    assert outcome.disposition.value == "FAILED"


def test_the_whole_repository_can_be_the_workspace(world: RealSparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        workspace.write(workspace.read("data/raw"), "copy")
        return Result()

    assert isinstance(attempt(world, body, prefix=""), Completed)
    assert world.rows("copy") == EVENTS
