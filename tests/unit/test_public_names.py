from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

import perago
from support.command_line import run_perago, run_python

HEAVY = ("pydantic", "pyspark", "lakefs_sdk", "conductor", "obstore")
# Type checkers know the names, and no list of them.
NAMES: list[str] = getattr(perago, "__all__")  # noqa: B009


def test_all_is_exactly_the_public_names() -> None:
    assert set(NAMES) == {
        "ExecutionLimits",
        "GuardrailViolation",
        "InputSpec",
        "PeragoError",
        "PublishBudget",
        "RetryPolicy",
        "SparkWorkspace",
        "TaskContext",
        "TaskControls",
        "TaskFailed",
        "TaskTerminalError",
        "TimeoutPolicy",
        "WorkspaceChanges",
        "WorkspaceSpec",
        "context",
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
    assert sorted(NAMES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_can_be_had_from_the_package_itself(name: str) -> None:
    assert getattr(perago, name).__name__ == name


def test_a_star_import_brings_the_public_names_and_no_others() -> None:
    found: dict[str, object] = {}
    exec("from perago import *", found)  # noqa: S102  the statement can stand in a module only
    assert sorted(found.keys() - {"__builtins__"}) == NAMES


def test_dir_shows_the_public_names_and_the_version() -> None:
    assert {*NAMES, "__all__", "__version__"} <= set(dir(perago))


@pytest.mark.parametrize("name", ["Task", "annotations", "_Task", "__wrapped__"])
def test_another_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(perago, name)


def test_the_version_is_that_of_the_installed_package(tmp_path: Path) -> None:
    assert perago.__version__ == importlib.metadata.version("perago-spark")
    ended = run_perago("--version", folder=tmp_path)
    assert (ended.code, ended.out) == (0, f"perago {perago.__version__}\n")


@pytest.mark.parametrize("command", [[], ["dev"], ["dev", "up"], ["check"], ["fence", "verify"]])
def test_every_command_takes_h_for_help(tmp_path: Path, command: list[str]) -> None:
    short, long = (run_perago(*command, option, folder=tmp_path) for option in ("-h", "--help"))
    assert (short.code, short.out) == (0, long.out)
    assert "-h, --help" in short.out


def command_line(*arguments: str) -> str:
    return (
        f"import sys; sys.argv = {['perago', *arguments]}\n"
        "from perago.cli import main\n"
        "try: main()\nexcept SystemExit: pass"
    )


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import perago", []),
        ("import perago; perago.__version__", []),
        # What an author imports is made with pydantic.
        ("from perago import *", ["pydantic"]),
        (command_line("--help"), []),
        (command_line("--version"), []),
        # typer itself loads pydantic, to read an option of `perago`.
        (command_line("fence", "verify", "--help"), ["pydantic"]),
    ],
    ids=["import", "version", "star", "help", "version option", "command help"],
)
def test_neither_an_import_nor_help_loads_anything_heavy(
    tmp_path: Path, code: str, loaded: list[str]
) -> None:
    probe = f"{code}\nimport sys; print('loaded:', sorted(set({HEAVY}) & set(sys.modules)))"
    ended = run_python("-c", probe, folder=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == f"loaded: {loaded}"
