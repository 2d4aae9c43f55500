"""Every folder of the gallery has tasks, a workflow that fits them, a test, data and a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago.operations.workflow_check import check_workflow
from perago.operations.workflow_file import read_workflow
from perago.tasks.discover import load_tasks

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/workflow.json"))
PAGE = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")


def test_the_gallery_has_its_patterns() -> None:
    assert NAMES == [
        "customer_history",
        "daily_partitions",
        "incremental_load",
        "model_training",
        "other_repository",
        "pandas_function",
        "write_audit_publish",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_workflow_of_an_example_fits_its_tasks(name: str) -> None:
    tasks = load_tasks([f"{name}.tasks"])
    workflow = read_workflow(EXAMPLES / name / "workflow.json")
    assert workflow.name == name
    assert check_workflow(workflow, tasks) == []
    assert {step["name"] for step in workflow.tasks} == {task.name for task in tasks}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_a_test_data_and_a_page_that_names_its_commands(name: str) -> None:
    folder = EXAMPLES / name
    assert (folder / f"test_{name}.py").is_file()
    assert any((folder / "data").glob("*/*/*"))
    page = (folder / "README.md").read_text(encoding="utf-8")
    for command in (f"python examples/run.py {name} ", f"pytest examples/{name} "):
        assert f"\n{command}" in page
    assert f"[{name}](../examples/{name})" in PAGE
