"""The tests of the examples, as readers run them; and every example on real servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.connections import LakeFSConnection
from perago.servers.spark import SMALL_JOBS, ConnectSettings
from support.connect import DELTA, connect_server
from support.example_runs import EXAMPLES, SOURCE, run_example

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]

# The others are in `make test-all` only.
QUICK = {"incremental_load", "write_audit_publish"}
NEEDS_DELTA = "customer_history"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/workflow.json"))
ON_ANY_SPARK = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in NAMES
    if name != NEEDS_DELTA
]


def run_tests(name: str, remote: str, folder: Path) -> str:
    """Run the tests of an example; what pytest printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / name)],
        cwd=EXAMPLES.parent,
        env={**os.environ, "PYTHONPATH": SOURCE, "SPARK_REMOTE": remote, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.only_proof("the tests of an example pass as a user runs them")
@pytest.mark.parametrize("name", ON_ANY_SPARK)
def test_the_tests_of_an_example_pass(name: str, spark_remote: str, tmp_path: Path) -> None:
    assert re.search(r"\d passed in", run_tests(name, spark_remote, tmp_path))


@pytest.fixture
def delta_remote(connection: LakeFSConnection, tmp_path: Path) -> Iterator[str]:
    conf = SMALL_JOBS | DELTA | {"spark.databricks.delta.snapshotPartitions": "2"}
    with connect_server(tmp_path, ConnectSettings("delta", connection, "local[2]", conf)) as server:
        yield server.remote


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tests_of_the_example_with_delta_pass(delta_remote: str, tmp_path: Path) -> None:
    printed = run_tests(NEEDS_DELTA, delta_remote, tmp_path)
    assert "1 passed" in printed


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_every_example_runs_by_one_command_on_real_servers(tmp_path: Path) -> None:
    out = run_example(["run.py"], {"TMPDIR": str(tmp_path)}, tmp_path, 840)
    for name in NAMES:
        assert re.search(rf"^.*\b{name}\b", out, re.MULTILINE), out
    # Each of two days brought what was new on it.
    assert out.index('{"files": 1, "rows": 2}') < out.index('{"files": 1, "rows": 1}')
    assert "2026-03-14: refused, main stays at" in out
    assert '{"customers": 3, "rows": 4}' in out
    assert list(tmp_path.iterdir()) == []
