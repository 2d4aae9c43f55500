"""``perago cache``: what it counts and what it removes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from perago.cli import app
from perago.transfer.cache import ObjectCache
from support.cached import put


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two entries."""
    cache = ObjectCache(tmp_path / "cache", 1 << 20)
    cache.prepare()
    put(cache, b"1")
    put(cache, b"2" * 5000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PERAGO_OBJECT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PERAGO_OBJECT_CACHE_BYTES", "1048576")
    return tmp_path / "cache"


def perago(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["cache", *arguments])


def test_the_status_counts_files_and_their_blocks(folder: Path) -> None:
    assert perago("status").stdout == f"{folder}: 2 files, 12288 bytes, at most 1048576\n"
    assert json.loads(perago("status", "--json").stdout) == {
        "schema": 1,
        "folder": str(folder),
        "files": 2,
        "bytes": 12288,
        "limit_bytes": 1048576,
    }


def test_a_cache_that_is_switched_off_can_still_be_seen_and_cleared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERAGO_OBJECT_CACHE_BYTES", "0")
    assert perago("status").stdout == f"{folder}: 2 files, 12288 bytes, switched off\n"
    assert perago("clear").exit_code == 0
    assert perago("status").stdout == f"{folder}: 0 files, 0 bytes, switched off\n"


def test_clear_removes_everything_and_says_how_much(folder: Path) -> None:
    done = perago("clear", "--json")
    removed = {"folder": str(folder), "files": 2, "bytes": 12288}
    assert json.loads(done.stdout) == {"schema": 1, **removed}
    assert perago("clear").stdout == f"{folder}: removed 0 files, 0 bytes\n"


def test_a_lock_that_another_process_holds_is_told_after_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perago.transfer.cache_space._CLEAR_SECONDS", 0.05)
    with ObjectCache(folder).space._usage(1.0) as usage:
        assert usage is not None
        done = perago("clear")
    assert done.exit_code == 1
    assert "run the command again" in done.stderr
    assert perago("status").stdout.startswith(f"{folder}: 2 files")
