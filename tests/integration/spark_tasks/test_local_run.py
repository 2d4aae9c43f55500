"""``perago run`` with a Spark task: a transaction without Conductor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from perago import SparkWorkspace, WorkspaceSpec, require_rows, task
from perago.testing import TaskWorkspace
from support.spark_world import EVENTS, RealSparkWorld
from support.workers import TASK_MODULES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]


def run(world: RealSparkWorld, *arguments: str) -> subprocess.CompletedProcess[str]:
    connection = world.servers.connection
    environment = {
        **os.environ,
        "LAKECTL_SERVER_ENDPOINT_URL": connection.endpoint,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": connection.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": connection.secret_access_key.get_secret_value(),
        "PERAGO_WORKSPACE_ROOT": str(world.root),
        "PERAGO_OBJECT_CACHE_BYTES": "0",
        "SPARK_REMOTE": world.remote,
    }
    return subprocess.run(
        [sys.executable, "-m", "perago", "run", "spark_bodies:s_copy", *arguments],
        cwd=TASK_MODULES,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_spark_task_is_published_from_the_command_line(world: RealSparkWorld) -> None:
    done = run(world, "--repository", world.repository, "--branch", "main")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["result"] == {"rows": len(EVENTS)}
    assert world.history()[:2] == [output["workspace"]["ref"], world.ref]
    assert world.rows("data/copy") == EVENTS
    assert "session: " in done.stderr
    world.assert_tidy()


def test_a_folder_is_no_place_for_a_spark_task(world: RealSparkWorld, tmp_path: Path) -> None:
    done = run(world, "--workspace", str(tmp_path))
    assert done.returncode == 2
    assert "give --repository R and --branch B" in " ".join(done.stderr.split())


class Counted(BaseModel):
    """How many rows there are."""

    rows: int = 0


SPEC = WorkspaceSpec(pre=[require_rows("in", min=2)], post=[require_rows("out", min=4, max=4)])


@task(name="double", owner_email="tests@example.com", workspace=SPEC)
def double(workspace: SparkWorkspace, params: Counted) -> Counted:
    """Write what is there twice."""
    found = workspace.read("in")
    workspace.write(found.union(found), "out")
    return Counted(rows=found.count())


@task(name="write_in", owner_email="tests@example.com")
def write_in(workspace: SparkWorkspace, params: Counted) -> Counted:
    """Write a table."""
    workspace.write(workspace.spark.range(params.rows).coalesce(1), "in")
    return params


def test_a_spark_task_runs_on_folders_and_a_local_session(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    space = TaskWorkspace(tmp_path)
    assert space.run(write_in, {"rows": 2}, spark=spark_session).result.rows == 2
    run = space.run(double, spark=spark_session)
    assert run.result.rows == 2
    assert run.diff.added
    assert all(path.startswith("out/") for path in run.diff.added)
    assert not [path for path in run.files if path.endswith(".crc")]
    # The guardrail after the body sees what the body wrote.
    assert space.run(write_in, {"rows": 3}, spark=spark_session).diff.changed == ()
    failed = space.run(double, spark=spark_session).failure
    assert failed is not None
    assert "6 rows" in failed.reason
