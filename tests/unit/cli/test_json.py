"""`--json` on every command: one object on stdout, with the version of its schema."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from perago import cli
from perago.cli import app, output
from support.command_line import run_perago
from support.workflows import simple_task

TASKS = """\
from pydantic import BaseModel

from perago import TaskFailed, task


class Params(BaseModel):
    n: int = 1


class Result(BaseModel):
    n: int


@task(name="double", owner_email="data@example.com")
def double(params: Params) -> Result:
    if params.n < 0:
        raise TaskFailed("it is negative")
    return Result(n=2 * params.n)
"""
WORKFLOW = {
    "name": "wf",
    "ownerEmail": "data@example.com",
    "tasks": [simple_task("double", {"params": {"n": 1}}, reference="double")],
}


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    command = command or typer.main.get_command(app)
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from commands(child, (*path, name))
    if not children:
        yield " ".join(path), {name for option in command.params for name in option.opts}


@pytest.mark.parametrize(("name", "options"), list(commands()))
def test_every_command_has_the_option(name: str, options: set[str]) -> None:
    assert "--json" in options, name


def test_all_json_of_commands_is_printed_by_one_function_that_adds_the_version() -> None:
    """`emit_value` prints what has no version: an array of TaskDefs, and a task's output."""
    others = []
    for file in sorted(Path(cli.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in {"json.dump", "json.dumps", "output.json_text", "output.emit_value"}:
                others.append((file.name, called))
            if called in {"sys.stdout.write", "print"}:
                assert file.name == "output.py"
    assert others == [
        ("extract.py", "output.json_text"),
        ("extract.py", "output.emit_value"),
        ("output.py", "json.dumps"),
        ("output.py", "json.dumps"),
        ("run.py", "output.emit_value"),
        ("workflow.py", "json.dumps"),  # a result in a line for people
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "workflow.json").write_text(json.dumps(WORKFLOW))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "keys"),
    [
        ("cache status", 0, "folder files bytes limit_bytes"),
        ("cache clear", 0, "folder files bytes"),
        ("check tasks", 0, "tasks problems warnings conductor exit_code"),
        ("config show", 0, "settings warnings"),
        ("dev down --data-dir stack", 0, "data_dir stopped"),
        ("dev logs --data-dir stack", 0, "data_dir logs"),
        ("dev status --data-dir stack", 3, "data_dir servers"),
        ("doctor", 1, "ok findings"),
        ("extract tasks", 0, "taskdefs file"),
        ("extract tasks -o taskdefs.json", 0, "taskdefs file"),
        ("init shop", 0, "folder files"),
        ("run tasks", 0, "status output failure"),
        ('run tasks --params {"n":-1}', 1, "status output failure"),
        ("sweep", 0, "root dry_run folders"),
        ("workflow check workflow.json tasks", 0, "workflow version input findings exit_code"),
    ],
)
def test_a_command_that_needs_no_server(folder: Path, arguments: str, code: int, keys: str) -> None:
    own = {
        "PERAGO_WORKSPACE_ROOT": str(folder / "root"),
        "PERAGO_OBJECT_CACHE": str(folder / "cache"),
        "HOME": str(folder),
    }
    done = run_perago(*arguments.split(), "--json", folder=folder, extra=own)
    assert done.code == code, done.err
    found = json.loads(done.out)
    assert list(found) == ["schema", *keys.split()]
    assert found["schema"] == output.SCHEMA


def test_a_run_has_its_output_or_its_failure(folder: Path) -> None:
    done = run_perago("run", "tasks", "--json", folder=folder)
    assert json.loads(done.out)["output"] == {"result": {"n": 2}}
    assert json.loads(run_perago("run", "tasks", folder=folder).out) == {"result": {"n": 2}}
    done = run_perago("run", "tasks", "--params", '{"n": -1}', "--json", folder=folder)
    assert json.loads(done.out) == {
        "schema": 1,
        "status": "FAILED",
        "output": None,
        "failure": {
            "reason": "TaskFailed: it is negative",
            "code": "PRG-301",
            "hint": "The task said so on purpose; its message has the reason.",
        },
    }


def test_a_file_of_taskdefs_is_the_same_with_the_option(folder: Path) -> None:
    run_perago("extract", "tasks", "-o", "one.json", folder=folder)
    done = run_perago("extract", "tasks", "-o", "two.json", "--json", folder=folder)
    assert (folder / "one.json").read_text() == (folder / "two.json").read_text()
    assert json.loads((folder / "one.json").read_text()) == json.loads(done.out)["taskdefs"]


def test_an_error_leaves_stdout_empty(folder: Path) -> None:
    done = run_perago("history", "shop", "--json", folder=folder)
    assert (done.code, done.out) == (2, "")


def test_the_page_of_the_command_line_states_the_version() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    section = page.partition("\n## JSON\n")[2].partition("\n## ")[0]
    assert re.findall(r"\*\*(\d+)\*\*", section) == [str(output.SCHEMA)]
    assert re.findall(r'"schema": (\d+)', section) == [str(output.SCHEMA)]
