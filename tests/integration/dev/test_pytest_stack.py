"""The fixtures `perago_stack` and `perago_spark` give the tests of an author the real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import perago

# Slow: it starts a stack of its own.
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.spark, pytest.mark.timeout(400)]

TEST = """
import httpx
from perago import SparkWorkspace, task
from pydantic import BaseModel


def test_the_servers_answer(perago_stack):
    endpoints = perago_stack.endpoints
    assert httpx.get(f"{endpoints.lakefs.endpoint}/_health").status_code == 200
    assert httpx.get(f"{endpoints.conductor.server_url}/metadata/taskdefs").json() is not None
    assert endpoints.spark is None


class Rows(BaseModel):
    n: int


@task(name="write", owner_email="a@example.com")
def write(workspace: SparkWorkspace, params: Rows) -> Rows:
    workspace.write(workspace.spark.range(params.n), "table")
    return Rows(n=workspace.spark.read.load(workspace.output("table")).count())


def test_a_spark_task(perago_spark, perago_workspace):
    assert perago_workspace.run(write, {"n": 3}, spark=perago_spark).result.n == 3
"""


def test_the_stack_runs_for_the_tests_and_ends_with_them(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "perago.pytest_plugin", str(tmp_path)]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "temp")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(perago.__file__).parents[1]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not list((tmp_path / "temp").glob("*/stack"))
