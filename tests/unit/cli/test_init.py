"""A new project runs as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import run_code, run_perago

_PYTEST = """
import sys, pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "."]))
"""


@pytest.mark.parametrize("options", [[], ["--spark"]])
def test_a_new_project_is_correct_and_its_tests_pass(tmp_path: Path, options: list[str]) -> None:
    made = run_perago("init", "my-shop", *options, folder=tmp_path)
    assert made.code == 0, made.err
    project = tmp_path / "my-shop"
    assert all("@@" not in file.read_text() for file in project.rglob("*") if file.is_file())
    assert run_perago("check", "pipeline", folder=project).out == (
        "my_shop_clean: ok\nmy_shop_totals: ok\n"
    )
    checked = run_perago("workflow", "check", "workflow.json", "pipeline", folder=project)
    assert (checked.code, checked.out) == (0, "my-shop: ok; its input is workspace\n")
    shown = run_perago("config", "show", "--json", folder=project)
    assert "my-shop/*" in shown.out
    tested = run_code(_PYTEST, folder=project)
    assert tested.code == 0, tested.out + tested.err
    ruff = str(Path(sys.executable).with_name("ruff"))
    for verb in (
        ["check", "--select=E,F", "--line-length=100"],
        ["format", "--check", "--line-length=100"],
    ):
        linted = subprocess.run(
            [ruff, *verb, "--isolated", "--no-cache", project],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert linted.returncode == 0, linted.stdout


def test_a_task_of_a_new_project_runs_on_its_sample_data(tmp_path: Path) -> None:
    run_perago("init", "shop", folder=tmp_path)
    project = tmp_path / "shop"
    done = run_perago("run", "pipeline:shop_clean", "--workspace", "data/sales", folder=project)
    assert done.code == 0, done.err
    assert json.loads(done.out)["result"] == {"kept": 6, "dropped": 1}


@pytest.mark.parametrize("name", ["Shop", "ab", "a_b", "-shop", "shop.git", "3shops"])
def test_a_name_that_cannot_be_a_repository_is_refused(tmp_path: Path, name: str) -> None:
    done = run_perago("init", "--", name, folder=tmp_path)
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    assert "PRG-102" in done.err
    assert "Use 3 to 63 lower-case letters" in done.err


def test_an_empty_folder_that_is_there_gives_the_project_its_name(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    assert run_perago("init", ".", folder=tmp_path / "shop").code == 0
    assert json.loads((tmp_path / "shop" / "workflow.json").read_text())["name"] == "shop"


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine").write_text("x")
    done = run_perago("init", "shop", folder=tmp_path)
    assert done.code == 2
    assert "is not an empty folder" in done.err
    assert [file.name for file in (tmp_path / "shop").iterdir()] == ["mine"]
