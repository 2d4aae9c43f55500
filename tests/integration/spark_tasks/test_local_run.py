"""``perago run`` with a Spark task: a transaction without Conductor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.spark_world import EVENTS, RealSparkWorld
from support.workers import TASK_MODULES

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
