from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from support.command_line import run_perago

GOOD = """\
from __future__ import annotations
from pathlib import Path
from pydantic import BaseModel
from perago import PublishBudget, TaskControls, TimeoutPolicy, task

class Tree(BaseModel):
    name: str
    branches: list[Tree] = []

@task(name="grow", owner_email="data@example.com")
def grow(workspace: Path, params: Tree) -> Tree:
    return params

@task(
    name="hurry",
    owner_email="data@example.com",
    controls=TaskControls(
        timeout=TimeoutPolicy(response_seconds=10),
        publish_budget=PublishBudget(2, 1, 5, 10, 20, 30),
    ),
)
def hurry(params: Tree) -> Tree:
    return params
"""
BAD = """\
from pydantic import BaseModel
from perago import task

class M(BaseModel): ...

@task(name="one", owner_email="nobody")
def one(params: int) -> M: ...

@task(name="two words", owner_email="data@example.com")
def two(params: M) -> M: ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    return tmp_path


def test_extract_prints_json_on_stdout_and_the_budget_warning_on_stderr(folder: Path) -> None:
    ended = run_perago("extract", "good", folder=folder)
    assert ended.code == 0
    grow, hurry = json.loads(ended.out)
    assert (grow["name"], hurry["name"]) == ("grow", "hurry")
    assert grow["inputSchema"]["data"]["properties"]["params"] == {"$ref": "#/$defs/Tree"}
    assert ended.err == (
        "warning: task 'hurry': responseTimeoutSeconds is 10, shorter than the publish budget of "
        "35 s; it must cover the whole attempt\n"
    )


@pytest.mark.parametrize("command", ["check", "extract", "register --dry-run"])
def test_a_module_may_import_the_python_files_of_the_settings(folder: Path, command: str) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "words.py").write_text("COUNT = 3\n")
    (folder / "needy.py").write_text("from words import COUNT\nfrom good import grow\n")
    extra = {"CONDUCTOR_SERVER_URL": "http://127.0.0.1:1/api"}
    ended = run_perago(*command.split(), "needy", folder=folder, extra=extra)
    assert "it needs 'words', which is not installed" in ended.out + ended.err
    extra["PERAGO_SPARK_PY_FILES"] = str(elsewhere / "words.py")
    ended = run_perago(*command.split(), "needy", folder=folder, extra=extra)
    assert "words" not in ended.out + ended.err


def test_what_a_module_prints_on_import_does_not_get_into_the_json(folder: Path) -> None:
    (folder / "noisy.py").write_text("print('loading')\nfrom good import grow\n")
    ended = run_perago("extract", "noisy", folder=folder)
    assert [taskdef["name"] for taskdef in json.loads(ended.out)] == ["grow"]
    assert ended.err == "loading\n"


def test_extract_takes_single_tasks(folder: Path) -> None:
    ended = run_perago("extract", "good:grow", folder=folder)
    assert [taskdef["name"] for taskdef in json.loads(ended.out)] == ["grow"]
    assert ended.err == ""


def test_extract_writes_the_same_text_to_a_file_and_leaves_nothing_else(folder: Path) -> None:
    target = folder / "out" / "taskdefs.json"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o644)
    ended = run_perago("extract", "good", "-o", "out/taskdefs.json", folder=folder)
    assert (ended.code, ended.out) == (0, "")
    assert target.read_text() == run_perago("extract", "good", folder=folder).out
    assert list(target.parent.iterdir()) == [target]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_extract_through_a_link_writes_where_the_link_points(folder: Path) -> None:
    (folder / "link.json").symlink_to("real.json")
    run_perago("extract", "good:grow", "-o", "link.json", folder=folder)
    assert (folder / "link.json").is_symlink()
    assert json.loads((folder / "real.json").read_text())


@pytest.mark.parametrize("target", ["missing/x.json", "."])
def test_a_file_that_cannot_be_written_is_2_and_nothing_is_left(folder: Path, target: str) -> None:
    before = sorted(folder.iterdir())
    ended = run_perago("extract", "good:grow", "-o", target, folder=folder)
    assert ended.code == 2
    assert f"PRG-102 ConfigurationError: cannot write {target!r}" in ended.err
    after = sorted(path for path in folder.iterdir() if path.name != "__pycache__")
    assert after == before


def test_a_definition_error_leaves_an_old_file_alone(folder: Path) -> None:
    (folder / "out.json").write_text("old")
    assert run_perago("extract", "bad", "-o", "out.json", folder=folder).code == 2
    assert (folder / "out.json").read_text() == "old"


def test_check_reports_every_problem_with_file_line_and_what_to_write(folder: Path) -> None:
    ended = run_perago("check", "bad", "good", "nowhere", folder=folder)
    assert ended.code == 2
    lines = ended.out.splitlines()
    assert lines[:3] == [
        "error: bad.py:6: task 'one': owner_email 'nobody': write an address like "
        "'data@example.com'",
        "error: bad.py:6: task 'one': parameter 'params' must be annotated with a pydantic model",
        "error: bad.py:9: task 'two words': name 'two words': write letters, digits, '_', '-' or "
        "'.', beginning with a letter",
    ]
    assert lines[3].startswith("error: no module named 'nowhere' in ")
    assert lines[-1] == "4 problems to correct"


def test_check_as_json_is_one_object_with_the_same_facts(folder: Path) -> None:
    ended = run_perago("check", "bad", "good", "--json", folder=folder)
    assert ended.code == 2
    report = json.loads(ended.out)
    assert report["tasks"] == ["grow", "hurry"]
    assert report["exit_code"] == 2
    assert report["problems"][0] == {
        "file": str(folder / "bad.py"),
        "line": 6,
        "task": "one",
        "text": "owner_email 'nobody': write an address like 'data@example.com'",
    }


def test_check_of_good_tasks_is_0_and_shows_warnings(folder: Path) -> None:
    ended = run_perago("check", "good", folder=folder)
    assert ended.code == 0
    whole, hurried, *rest = ended.out.splitlines()
    # It gives no WorkspaceSpec; the other one takes no workspace.
    assert whole.startswith("warning: task 'grow' takes the whole repository: give workspace=")
    assert hurried.startswith("warning: task 'hurry': responseTimeoutSeconds is 10")
    assert rest == ["grow: ok", "hurry: ok"]


def test_check_connect_does_not_ask_for_a_server_while_definitions_are_wrong(folder: Path) -> None:
    ended = run_perago("check", "bad", "--connect", folder=folder)
    assert ended.code == 2
    assert "CONDUCTOR_SERVER_URL" not in ended.err
