"""Where the file system puts the folders of attempts."""

from __future__ import annotations

import array
import fcntl
import os
from pathlib import Path

import pytest

from perago.transfer import workspaces
from perago.transfer.workspaces import local_directory, spread_folders
from support.executions import an_execution


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder on a file system that has such flags."""
    try:
        _flag(tmp_path, workspaces._TOP_OF_HIERARCHIES)
    except OSError as error:
        pytest.skip(f"this file system has no flag for it: {error}")
    _flag(tmp_path, 0)
    return tmp_path


def _flag(folder: Path, flag: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flags = array.array("l", [_flags(folder) & ~workspaces._TOP_OF_HIERARCHIES | flag])
        fcntl.ioctl(descriptor, workspaces._SET_FLAGS, flags)
    finally:
        os.close(descriptor)


def _flags(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(descriptor, workspaces._GET_FLAGS, flags)
        return flags[0]
    finally:
        os.close(descriptor)


def test_attempt_directories_are_placed_apart_and_what_is_in_them_together(root: Path) -> None:
    before = _flags(root)
    with local_directory(root, an_execution()) as made:
        assert _flags(root) == before | workspaces._TOP_OF_HIERARCHIES
        assert not _flags(made.path) & workspaces._TOP_OF_HIERARCHIES
        assert not _flags(made.data) & workspaces._TOP_OF_HIERARCHIES


def test_other_flags_of_the_folder_stay(root: Path) -> None:
    no_dump = 0x40
    _flag(root, no_dump)
    spread_folders(root)
    assert _flags(root) & no_dump


@pytest.mark.parametrize("folder", ["missing", "file", "/proc", "/sys"])
def test_what_cannot_have_the_flag_is_no_error(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    spread_folders(tmp_path / folder)


def test_elsewhere_than_on_linux_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(fcntl, "ioctl", lambda *given: asked.append(given))
    spread_folders(tmp_path)
    assert not asked
