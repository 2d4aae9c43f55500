"""``perago sweep``: what it lists, what it removes, and which ages it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from perago.cli import app
from perago.transfer import sweep as sweeping


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace root with the folder of an execution of another host."""
    folder = tmp_path / "root" / "task-execution"
    folder.mkdir(parents=True)
    marker = {"execution_id": "e", "host": "elsewhere", "boot": 1, "pid": 1}
    (folder / ".perago-attempt.json").write_text(json.dumps(marker))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PERAGO_WORKSPACE_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def perago(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sweep", *arguments])


def test_without_an_age_a_folder_of_another_host_is_kept(root: Path) -> None:
    done = perago("--yes")
    assert done.exit_code == 0
    assert "foreign: " in done.output
    assert len(list(root.iterdir())) == 1


def test_an_old_folder_of_another_host_is_listed_and_removed_with_yes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "young: " in perago("--older-than", "7d").output
    monkeypatch.setattr(sweeping, "_changed_since", lambda *_: False)
    assert "removable: " in perago("--older-than", "7d").output
    assert len(list(root.iterdir())) == 1
    [folder] = json.loads(perago("--older-than", "7d", "--yes", "--json").stdout)["folders"]
    assert folder["fate"] == "removed"
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("age", ["0d", "59m", "1", "-1d", "1w", "d", ""])
def test_an_age_that_is_too_small_or_unclear_is_refused(root: Path, age: str) -> None:
    assert perago("--older-than", age, "--yes").exit_code == 2
    assert len(list(root.iterdir())) == 1
