"""``perago workflow`` and ``perago workspace``, where no server is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_perago
from support.workflows import simple_task

MODULE = """
from pathlib import Path
from pydantic import BaseModel
from perago import task
class Params(BaseModel):
    day: str = ""
class Result(BaseModel):
    rows: int = 0
@task(name="clean", owner_email="a@example.com")
def clean(workspace: Path, params: Params) -> Result: ...
@task(name="report", owner_email="a@example.com")
def report(workspace: Path, params: Params) -> Result: ...
"""


def step(name: str, workspace: str, **params: Any) -> dict[str, Any]:
    return simple_task(name, {"workspace": workspace, "params": params}, reference=name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(MODULE)
    tasks = [
        step("clean", "${workflow.input.workspace}", day="${workflow.input.day}"),
        step("report", "${workflow.input.workspace}", dya="x"),
    ]
    workflow = {"name": "wf", "ownerEmail": "a@example.com", "tasks": tasks}
    (tmp_path / "workflow.json").write_text(json.dumps(workflow))
    return tmp_path


def test_check_names_every_mistake_and_ends_with_2(folder: Path) -> None:
    done = run_perago("workflow", "check", "workflow.json", "tasks", folder=folder)
    assert done.code == 2
    assert done.out.splitlines() == [
        "error: step 'report': params: Params has no field 'dya'; did you mean 'day'?",
        "error: step 'report': takes the workspace of the workflow's input, but step 'clean' "
        "publishes to the same branch before it, so that it fails with PRG-502: write "
        '"workspace": "${clean.output.workspace}"',
        "2 problems to correct",
    ]


def test_check_as_json_has_the_findings_and_the_input(folder: Path) -> None:
    done = run_perago("workflow", "check", "workflow.json", "--json", folder=folder)
    found = json.loads(done.out)
    assert (found["exit_code"], done.code) == (0, 0)
    assert found["input"] == ["day", "workspace"]
    assert [(item["severity"], item["step"]) for item in found["findings"]] == [
        ("warning", "report")
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "missing.json"], "missing.json"),
        (["run", "workflow.json", "--input", "[]"], "--input must be a JSON object, not list"),
        (["run", "workflow.json", "--input", "{"], "--input is not JSON"),
        (["run", "workflow.json", "--input", "@nope"], "cannot read 'nope'"),
        (["run", "workflow.json", "--branch", "main"], "--branch needs --repository"),
        (["run", "workflow.json", "--repository", "shop"], "CONDUCTOR_SERVER_URL"),
        (["follow", "some-id"], "CONDUCTOR_SERVER_URL"),
        (["check", "tasks.py"], "is not JSON"),
        (["check", "workflow.json", "nope"], "no module named 'nope'"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(
    folder: Path, arguments: list[str], says: str
) -> None:
    done = run_perago("workflow", *arguments, folder=folder)
    assert done.code == 2
    assert says in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["put", "nope", "shop", "-m", "x"], "'nope' does not exist"),
        (["put", ".", "shop"], "--message"),
        (["put", ".", "lakefs://shop/main", "-m", "x"], "Write REPOSITORY, REPOSITORY@BRANCH"),
        (["put", ".", "shop/../x", "-m", "x"], "prefix '../x'"),
        (["ls", "shop"], "LAKECTL_SERVER_ENDPOINT_URL"),
    ],
)
def test_wrong_places_are_2_and_say_how_one_is_written(
    folder: Path, arguments: list[str], says: str
) -> None:
    done = run_perago("workspace", *arguments, folder=folder)
    assert done.code == 2
    assert says in " ".join(done.err.split())
