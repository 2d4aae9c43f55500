"""A write that failed is never published as if it had not been asked for."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from perago import SparkWorkspace
from perago.protocol.outcome import Completed
from support.real_world import Params, Result
from support.spark_world import (
    ALSO_ON_A_CLUSTER,
    CLEAN,
    RealSparkWorld,
    attempt,
    clean,
    refused,
)

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]

# Fails in a task of the job: by then Spark has deleted what was there.
_BROKEN = "SELECT id, assert_true(id < 0) AS broken FROM range(2)"


def by_the_workspace(workspace: SparkWorkspace, path: str) -> None:
    workspace.write(workspace.spark.sql(_BROKEN), path)


def by_the_frame(workspace: SparkWorkspace, path: str) -> None:
    workspace.spark.sql(_BROKEN).write.mode("overwrite").parquet(workspace.output(path))


def by_sql(workspace: SparkWorkspace, path: str) -> None:
    target = workspace.output(path)
    workspace.spark.sql(f"INSERT OVERWRITE DIRECTORY '{target}' USING parquet {_BROKEN}")


@ALSO_ON_A_CLUSTER
def test_a_failed_write_that_the_body_swallows_fails_the_attempt(world: RealSparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        with suppress(Exception):
            by_the_workspace(workspace, "raw")
        return Result()

    assert "'raw'" in refused(world, body, "FailedWriteError").reason


def test_every_way_to_write_counts_and_every_failed_path_is_named(world: RealSparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        for path, write in {"one": by_the_frame, "two": by_sql}.items():
            with suppress(Exception):
                write(workspace, path)
        return clean(workspace, params)

    reason = refused(world, body, "FailedWriteError").reason
    assert "2 " in reason
    assert "'one'" in reason
    assert "'two'" in reason


def test_a_path_that_is_written_again_with_success_is_published(world: RealSparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Result:
        for write in (by_the_workspace, by_the_frame, by_sql):
            with suppress(Exception):
                write(workspace, "clean")
        return clean(workspace, params)

    outcome = attempt(world, body)
    assert isinstance(outcome, Completed), outcome
    assert world.rows("data/clean") == CLEAN


@ALSO_ON_A_CLUSTER
def test_a_thread_that_the_body_left_writes_nothing_into_the_publication(
    world: RealSparkWorld,
) -> None:
    checked, met = threading.Event(), list[str]()

    def body(workspace: SparkWorkspace, params: Params) -> Result:
        def write_late() -> None:
            checked.wait(60)
            try:
                by_the_workspace(workspace, "raw")
            except Exception as error:  # noqa: BLE001  its type is what is looked at
                met.append(type(error).__name__)

        thread.append(threading.Thread(target=write_late))
        thread[0].start()
        return clean(workspace, params)

    def after_the_check(workspace: SparkWorkspace) -> None:
        checked.set()
        thread[0].join(60)

    thread: list[threading.Thread] = []
    outcome = attempt(world, body, post=[after_the_check])
    assert isinstance(outcome, Completed), outcome
    assert met == ["UnfinishedOperationError"]
    assert world.rows("data/clean") == CLEAN
