"""The interpreter of a session: a script that brings packages with compiled parts along."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perago.servers.toolchain.cache import Cache
from perago.spark import packages
from perago.spark.packages import INTERPRETER, interpreter_file

LOOK = "import sys, tenacity; print(tenacity.__file__, *sys.argv[1:])"


def test_it_has_the_compiled_packages_and_is_made_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    made = interpreter_file(cache)
    assert made.read_bytes().startswith(b"#!/bin/sh\n")
    with zipfile.ZipFile(made) as packed:
        assert packed.testzip() is None
        tops = {name.partition("/")[0] for name in packed.namelist()}
    assert {"pydantic", "pydantic_core", "obstore", "httpcore", "psutil"} <= tops
    # The cluster's own: far too large to be sent.
    assert not {"pyspark", "pandas", "pyarrow", "numpy"} & tops
    written = made.stat().st_mtime_ns
    assert interpreter_file(cache).stat().st_mtime_ns == written


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one package, for which the time does not count."""
    monkeypatch.setattr(packages, "_ROOTS", ("tenacity",))


@pytest.mark.usefixtures("small")
def test_the_same_packages_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (interpreter_file(Cache(tmp_path / name)) for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def start(session: Path) -> subprocess.Popen[str]:
    """Start it as Spark does: in the folder of a session, by its relative name."""
    return subprocess.Popen(
        [INTERPRETER, "-c", LOOK, "an argument"],
        cwd=session,
        env={"PYSPARK_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("small")
def test_the_sessions_of_an_executor_unpack_the_packages_once(tmp_path: Path) -> None:
    executor = tmp_path / "an executor's folder"
    made = interpreter_file(Cache(tmp_path / "cache")).read_bytes()
    sessions = [executor / f"session {number}" for number in range(3)]
    for session in sessions:
        session.mkdir(parents=True)
        (session / INTERPRETER).write_bytes(made)
        (session / INTERPRETER).chmod(0o755)
    started = [start(session) for session in sessions]
    said = {process.communicate(timeout=60)[0] for process in started}
    [folder] = executor.glob("perago_packages-*")
    assert said == {f"{folder}/tenacity/__init__.py an argument\n"}
    # Whoever came second has left nothing.
    assert {entry.name for entry in executor.iterdir()} == {
        folder.name,
        *(session.name for session in sessions),
    }
    assert start(sessions[0]).communicate(timeout=60)[0] in said


@pytest.mark.usefixtures("small")
def test_an_executor_without_room_for_the_packages_says_so(tmp_path: Path) -> None:
    session = tmp_path / "executor" / "session"
    session.mkdir(parents=True)
    made = interpreter_file(Cache(tmp_path / "cache")).read_bytes()
    # Cut off in the middle, as a copy on a full disk is.
    (session / INTERPRETER).write_bytes(made[: len(made) // 2])
    (session / INTERPRETER).chmod(0o755)
    process = start(session)
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == 1
    assert [entry.name for entry in session.parent.iterdir()] == ["session"]
