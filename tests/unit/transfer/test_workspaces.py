"""The attempt directory: made whole, locked, known by its identity, always removed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perago.errors import ProjectionError
from perago.transfer import workspaces as module
from perago.transfer.scan import scan
from perago.transfer.sweep import Fate, clear
from perago.transfer.workspaces import local_directory
from support.executions import an_execution
from support.trees import deep_folder

TRY_LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_directory_is_named_after_task_and_execution_and_its_data_folder_is_empty(
    tmp_path: Path,
) -> None:
    with local_directory(tmp_path / "root", an_execution()) as made:
        assert made.path == tmp_path / "root" / "task-1-exec-1"
        assert list(made.data.iterdir()) == []
        assert [path.name for path in (tmp_path / "root").iterdir()] == ["task-1-exec-1"]
    assert list((tmp_path / "root").iterdir()) == []


def test_the_marker_is_not_in_the_folder_that_guardrail_globs_see(tmp_path: Path) -> None:
    """A marker among the data would be counted by the globs of guardrails."""
    with local_directory(tmp_path, an_execution()) as made:
        assert list(made.data.rglob("*")) == []
        assert (made.path / ".perago-attempt.json").is_file()


def test_the_marker_names_the_attempt_the_execution_the_host_and_the_boot(tmp_path: Path) -> None:
    with local_directory(tmp_path, an_execution()) as made:
        marker = json.loads((made.path / ".perago-attempt.json").read_text())
    assert marker["task_id"] == "task-1"
    assert marker["workflow_instance_id"] == "workflow-1"
    assert marker["retry_count"] == 2
    assert marker["execution_id"] == "exec-1"
    assert marker["host"] == socket.gethostname()
    assert marker["pid"] == os.getpid()
    assert marker["boot"] > 0


def test_nobody_else_may_look_into_the_directory(tmp_path: Path) -> None:
    with local_directory(tmp_path / "root", an_execution()) as made:
        assert _mode(tmp_path / "root") == _mode(made.path) == _mode(made.data) == 0o700
        assert _mode(made.path / ".perago-attempt.json") == 0o600
        assert _mode(made.path / ".perago-lock") == 0o600


def test_another_process_cannot_take_the_lock_while_the_execution_lives(tmp_path: Path) -> None:
    with local_directory(tmp_path, an_execution()) as made:
        command = [sys.executable, "-c", TRY_LOCK, str(made.path / ".perago-lock")]
        taken = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert "BlockingIOError" in taken.stderr


def test_the_directory_appears_under_its_name_only_when_it_is_locked_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    rename = Path.rename

    def look_and_rename(self: Path, target: Path) -> Path:
        seen.append({path.name for path in self.iterdir()})
        assert not target.exists()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", look_and_rename)
    with local_directory(tmp_path, an_execution()):
        assert seen == [{".perago-attempt.json", ".perago-lock", "data"}]


def test_the_directory_is_removed_after_an_exception_which_goes_on(tmp_path: Path) -> None:
    def body(data: Path) -> None:
        (data / "file").write_bytes(b"x")
        raise KeyError("the body's")

    with pytest.raises(KeyError, match="body"), local_directory(tmp_path, an_execution()) as made:
        body(made.data)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_prepared_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(module, "_write_marker", no_space)
    with pytest.raises(OSError, match="no space"), local_directory(tmp_path, an_execution()):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_removal_that_fails_is_logged_and_does_not_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not today")

    with caplog.at_level(logging.WARNING), local_directory(tmp_path, an_execution()) as made:
        monkeypatch.setattr(os, "rmdir", refuse)
    assert f"failed to remove attempt directory {made.path}: not today" in caplog.text


def test_a_tree_deeper_than_python_recurses_is_scanned_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REMOVAL_SECONDS", 60.0)
    with local_directory(tmp_path, an_execution()) as made, deep_folder(made.data, 1500):
        assert set(scan(made.data).files) == {"d/" * 1500 + "file"}
    assert list(tmp_path.iterdir()) == []


def test_a_removal_that_takes_too_long_is_left_to_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_REMOVAL_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING), local_directory(tmp_path, an_execution()) as made:
        for number in range(3):
            (made.data / str(number)).mkdir()
    assert "not finished within 0 s" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == [".new-task-1-exec-1"]

    assert clear(tmp_path, an_execution()).of(Fate.REMOVED) == [tmp_path / ".new-task-1-exec-1"]
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_changes_the_current_folder_does_not_lose_its_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with local_directory(Path("root"), an_execution()) as made:
        monkeypatch.chdir(tmp_path / "elsewhere")
        made.assert_ours()
    assert list((tmp_path / "root").iterdir()) == []


def test_a_folder_that_the_body_only_changed_inside_is_still_ours(tmp_path: Path) -> None:
    with local_directory(tmp_path, an_execution()) as made:
        (made.data / "new").mkdir()
        made.assert_ours()


def _remove(data: Path) -> None:
    data.rmdir()


def _replace(data: Path) -> None:
    data.rename(data.with_name("moved"))
    data.mkdir()


def _recreate(data: Path) -> None:
    data.rmdir()
    data.mkdir()


def _link(data: Path) -> None:
    data.rename(data.with_name("moved"))
    data.symlink_to("moved")


def _sweep(data: Path) -> None:
    shutil.rmtree(data.parent)


@pytest.mark.parametrize("harm", [_remove, _replace, _recreate, _link, _sweep])
def test_a_data_folder_that_is_not_the_one_we_made_is_refused(tmp_path: Path, harm: object) -> None:
    assert callable(harm)
    with local_directory(tmp_path, an_execution()) as made:
        harm(made.data)
        with pytest.raises(ProjectionError, match="not the one this execution made"):
            made.assert_ours()


def test_read_only_folders_that_a_body_left_are_removed(plain_user: Path) -> None:
    with local_directory(plain_user / "root", an_execution()) as made:
        inner = made.data / "locked" / "inner"
        inner.mkdir(parents=True)
        (inner / "file").touch(mode=0o400)
        inner.chmod(0o000)
        inner.parent.chmod(0o500)
        made.data.chmod(0o500)
    assert list((plain_user / "root").iterdir()) == []
