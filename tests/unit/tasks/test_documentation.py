"""docs/writing-tasks.md lists what an author can write, with its defaults."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import perago
from perago import (
    ExecutionLimits,
    InputSpec,
    PublishBudget,
    RetryPolicy,
    TaskContext,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    task,
)
from perago.tasks.definition import definition_of
from perago.tasks.taskdef import build_taskdef
from support.command_line import run_code

_PYTEST = """
import sys, pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "."]))
"""
DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "writing-tasks.md").read_text(encoding="utf-8")


class Model(BaseModel):
    pass


def section(heading: str) -> str:
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"there is no heading {heading!r}"
    return found[1]


def table(heading: str) -> list[list[str]]:
    """The cells of the rows below a heading whose first cell is code."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def shown_default(field: Any) -> str:
    if field.default is not MISSING:
        value = field.default
        return f'`"{value}"`' if isinstance(value, str) else f"`{value!r}`"
    assert field.default_factory is not MISSING
    value = field.default_factory()
    return f"`{value!r}`" if isinstance(value, dict) else f"`{type(value).__name__}()`"


@pytest.mark.parametrize(
    "kind", [WorkspaceSpec, InputSpec, TaskControls, RetryPolicy, TimeoutPolicy, ExecutionLimits]
)
def test_the_page_lists_every_field_with_its_default(kind: Any) -> None:
    rows = [row[:2] for row in table(kind.__name__)]
    assert rows == [[f"`{field.name}`", shown_default(field)] for field in fields(kind)]


def test_the_page_lists_every_field_of_the_publish_budget() -> None:
    assert [row[0] for row in table("PublishBudget")] == [
        f"`{field.name}`" for field in fields(PublishBudget)
    ]


def test_the_page_lists_every_argument_of_the_decorator() -> None:
    listed = [row[0].strip("`") for row in table("The function")]
    arguments = inspect.signature(task).parameters
    assert sorted(name for name in listed if name in arguments) == sorted(arguments)


def test_the_page_lists_every_guardrail_with_parameters_that_it_has() -> None:
    rows = [re.fullmatch(r"`(\w+)\((.*)\)`", row[0]) for row in table("Guardrails")]
    found = {row[1]: row[2] for row in rows if row}
    built_in = {it for it in dir(perago) if it.startswith(("require_", "forbid_"))}
    assert found.keys() == built_in
    for name, shown in found.items():
        parameters = inspect.signature(getattr(perago, name)).parameters
        for part in shown.split(", "):
            parameter, _, default = part.partition("=")
            assert parameter in parameters
            assert not default or repr(parameters[parameter].default) == default


def test_the_page_says_where_every_field_of_a_taskdef_comes_from() -> None:
    @task(
        name="everything",
        owner_email="data@example.com",
        controls=TaskControls(limits=ExecutionLimits(concurrent=1, rate=1)),
    )
    def everything(params: Model) -> Model:
        return params

    definition = definition_of(everything)
    assert definition is not None
    listed = [name for row in table("TaskDef") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(listed) == sorted(build_taskdef(definition))


def python_blocks(heading: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", section(heading), re.DOTALL)


def test_the_examples_of_the_page_run_and_its_tests_pass(tmp_path: Path) -> None:
    (module,) = python_blocks("The function")
    (tests,) = python_blocks("Tests")
    (tmp_path / "clean_events.py").write_text(module)
    (tmp_path / "test_clean_events.py").write_text(tests)
    # Another page tests the same task.
    page = (DOCS / "local-runs.md").read_text(encoding="utf-8")
    (more,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "test_local_runs.py").write_text(more)
    for heading in ("Guardrails", "In the body: perago.context()"):
        (example,) = python_blocks(heading)
        (tmp_path / f"example_{len(example)}.py").write_text(example)
    for file in sorted(tmp_path.glob("*.py")):
        done = run_code(f"import runpy; runpy.run_path({str(file)!r})", folder=tmp_path)
        assert done.code == 0, done.err
    tested = run_code(_PYTEST, folder=tmp_path)
    assert tested.code == 0, tested.out + tested.err
    assert "5 passed" in tested.out


def test_the_page_lists_what_a_context_has() -> None:
    shown = section("In the body: perago.context()")
    public = [name for name in dir(TaskContext()) if not name.startswith("_") and name != "close"]
    for name in public:
        assert re.search(rf"`{name}\b", shown), name
