from __future__ import annotations

from pathlib import Path

import pytest

import perago
from support.command_line import run_python

HEAVY = ("pyspark", "lakefs_sdk", "conductor", "obstore")


def test_all_is_exactly_the_public_names() -> None:
    assert set(perago.__all__) == {
        "ExecutionLimits",
        "GuardrailViolation",
        "PeragoError",
        "PublishBudget",
        "RetryPolicy",
        "SparkWorkspace",
        "TaskControls",
        "TaskFailed",
        "TaskTerminalError",
        "TimeoutPolicy",
        "WorkspaceSpec",
        "forbid_glob",
        "require_dir",
        "require_file",
        "require_glob",
        "require_not_null",
        "require_rows",
        "require_schema",
        "require_unique",
        "task",
    }
    assert perago.__all__ == sorted(perago.__all__)


@pytest.mark.parametrize("name", perago.__all__)
def test_a_public_name_can_be_had_from_the_package_itself(name: str) -> None:
    assert getattr(perago, name).__name__ == name


def test_dir_shows_the_public_names() -> None:
    assert set(perago.__all__) <= set(dir(perago))


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Task'"):
        perago.Task  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import perago",
        "from perago import *",
        "import sys; sys.argv = ['perago', '--help']\n"
        "from perago.cli import main\n"
        "try: main()\nexcept SystemExit: pass",
        "import sys; sys.argv = ['perago', 'fence', 'verify', '--help']\n"
        "from perago.cli import main\n"
        "try: main()\nexcept SystemExit: pass",
    ],
    ids=["import", "star", "help", "command help"],
)
def test_neither_an_import_nor_help_loads_anything_heavy(tmp_path: Path, code: str) -> None:
    probe = f"{code}\nimport sys; print('loaded:', sorted(set({HEAVY}) & set(sys.modules)))"
    ended = run_python("-c", probe, folder=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == "loaded: []"
