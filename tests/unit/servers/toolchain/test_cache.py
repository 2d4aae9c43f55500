"""The cache makes each artifact once, atomically."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perago.errors import SetupError
from perago.servers.toolchain.cache import Cache

# Makes an artifact slowly and notes that it did: run by two processes at once.
_BUILDER = """
import sys, time
from pathlib import Path
from perago.servers.toolchain.cache import Cache

root, notes = Path(sys.argv[1]), Path(sys.argv[2])

def make(directory):
    (directory / "half").write_text("half")
    with notes.open("a") as file:
        file.write("made\\n")
    time.sleep(float(sys.argv[3]))
    (directory / "whole").write_text("whole")

print(Cache(root).obtain("thing-1.0", make))
"""


def _builder(root: Path, notes: Path, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _BUILDER, str(root), str(notes), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _whole(directory: Path) -> None:
    (directory / "whole").write_text("whole")


def test_an_artifact_is_made_once_and_then_found(tmp_path: Path) -> None:
    made: list[Path] = []
    cache = Cache(tmp_path / "cache")
    first = cache.obtain("thing-1.0", made.append)
    second = cache.obtain("thing-1.0", made.append)
    assert first == second == tmp_path / "cache" / "thing-1.0"
    assert len(made) == 1


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    builders = [_builder(tmp_path / "cache", notes, 0.5) for _ in range(2)]
    answers = [builder.communicate(timeout=30)[0] for builder in builders]
    assert notes.read_text() == "made\n"
    assert answers[0] == answers[1] != b""


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def broken(directory: Path) -> None:
        (directory / "half").write_text("half")
        raise SetupError("the download failed")

    cache = Cache(tmp_path)
    with pytest.raises(SetupError, match="the download failed"):
        cache.obtain("thing-1.0", broken)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_what_a_killed_builder_left_is_not_taken_for_good(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with _builder(tmp_path / "cache", notes, 60) as builder:
        deadline = time.monotonic() + 20
        while not notes.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        builder.send_signal(signal.SIGKILL)
    found = Cache(tmp_path / "cache").obtain("thing-1.0", _whole)
    assert [path.name for path in found.iterdir()] == ["whole"]


def test_a_full_disk_is_said_in_one_sentence(tmp_path: Path) -> None:
    def full(_directory: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(SetupError, match="the disk is full") as caught:
        Cache(tmp_path).obtain("thing-1.0", full)
    assert "PERAGO_CACHE" in caught.value.hint


def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError) as caught:
        Cache(tmp_path / "file" / "cache").obtain("thing-1.0", _whole)
    assert "PERAGO_CACHE" in caught.value.hint


def test_the_variable_names_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERAGO_CACHE", str(tmp_path / "mine"))
    assert Cache.of_user().root == tmp_path / "mine"
