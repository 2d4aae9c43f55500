"""How the suite is built: helpers in ``support``, tests that know nothing of each other."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from support.durations import BUDGET_SECONDS, MAY_BE_LONG, over_budget
from support.scheduling import TOGETHER, group_of
from support.uncounted import uncounted

TESTS = Path(__file__).parents[1]
SUPPORT = TESTS / "support"
MODULES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("*.py"))
# The model, with tests beside it, and the soak are programs of their own.
HELPERS = {"support", "model", "soak"}
FOLDERS = {path.name for path in TESTS.iterdir() if path.is_dir()} - HELPERS


def imported(tree: ast.AST) -> Iterator[str]:
    """The name of every module that is imported, also inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def is_of_the_suite(name: str) -> bool:
    """Whether a module is a test, a conftest, or lies beside one."""
    first, last = name.partition(".")[0], name.rpartition(".")[2]
    of_a_test = first in FOLDERS or last.startswith(("test_", "conftest"))
    return of_a_test or name.startswith((".", "tests"))


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_nothing_is_imported_from_a_test_or_a_conftest(module: Path) -> None:
    found = set(imported(ast.parse((TESTS / module).read_text(encoding="utf-8"))))
    assert {name for name in found if is_of_the_suite(name)} == set()


def test_the_rule_knows_what_it_is_about() -> None:
    source = "from integration.worker.conftest import site\nimport unit.test_x\nfrom . import y\n"
    assert [is_of_the_suite(name) for name in imported(ast.parse(source))] == [True] * 3
    assert not any(map(is_of_the_suite, ("support.workers", "perago.testing", "contextlib")))


def test_a_folder_of_tests_holds_tests_and_their_conftests_only() -> None:
    helpers = [
        path
        for path in MODULES
        if path.parts[0] not in HELPERS and not path.name.startswith(("test_", "conftest"))
    ]
    assert helpers == []


def test_no_helper_is_a_test() -> None:
    assert [path for path in SUPPORT.rglob("*.py") if path.name.startswith("test_")] == []


# A step's field, which only the builder of workflows writes. Besides: an answer of Conductor as
# its API gives it, and a program that must know nothing of the suite.
STEP_FIELD = "taskReferenceName"
WITHOUT_BUILDER = {"unit/adapters/test_inspection.py", "support/stack_client.py"}


def writes_a_step(tree: ast.AST) -> bool:
    """Whether a dict with the field is written, or the field is given to a call or set."""
    for node in ast.walk(tree):
        match node:
            case ast.Dict(keys=keys):
                written: list[ast.expr | None] = keys
            case ast.Subscript(slice=key, ctx=ast.Store()):
                written = [key]
            case ast.keyword(arg=arg) if arg == STEP_FIELD:
                return True
            case _:
                continue
        if any(isinstance(key, ast.Constant) and key.value == STEP_FIELD for key in written):
            return True
    return False


def trees_with(word: str) -> Iterator[tuple[Path, ast.AST]]:
    """The modules in which a word occurs, parsed; to parse all of them takes seconds."""
    for module in MODULES:
        source = (TESTS / module).read_text(encoding="utf-8")
        if word in source:
            yield module, ast.parse(source)


def test_every_workflow_is_built_by_one_module() -> None:
    writing = {str(module) for module, tree in trees_with(STEP_FIELD) if writes_a_step(tree)}
    assert writing == {"support/workflows.py", *WITHOUT_BUILDER}


@pytest.mark.parametrize(
    ("source", "writes"),
    [
        (f'step = {{"name": "a", "{STEP_FIELD}": "a"}}', True),
        (f'step["{STEP_FIELD}"] = "a"', True),
        (f'dict({STEP_FIELD}="a")', True),
        (f'found = step["{STEP_FIELD}"]', False),
        (f'text = "needs {STEP_FIELD}"', False),
    ],
)
def test_a_step_that_is_written_by_hand_is_seen(source: str, writes: bool) -> None:
    assert writes_a_step(ast.parse(source)) is writes


def test_tests_that_must_be_alone_are_where_make_looks_for_them() -> None:
    mark = "pytest.mark." + "alone"
    marked = {path.parts[0] for path in MODULES if mark in (TESTS / path).read_text("utf-8")}
    assert marked == {"integration"}
    assert "ALONE := tests/integration\n" in (TESTS.parent / "Makefile").read_text("utf-8")


def test_a_test_that_must_be_alone_is_slow() -> None:
    """`make test` runs all that is not slow in one go."""
    for module, tree in trees_with("pytest.mark." + "alone"):
        marks = [
            ast.unparse(given)
            for node in ast.walk(tree)
            for given in (
                [ast.List(node.decorator_list, ast.Load())]
                if isinstance(node, ast.FunctionDef)
                else [node.value]
                if isinstance(node, ast.Assign)
                else []
            )
        ]
        alone = [each for each in marks if ".alone" in each]
        assert alone, module
        assert all(".slow" in each for each in alone), module


def test_every_group_of_tests_that_stay_together_has_some() -> None:
    ids = [
        f"tests/{module}::{node.name}"
        for module in MODULES
        for node in ast.walk(ast.parse((TESTS / module).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert {group_of(each) for each in ids} == {None, *TOGETHER}
    on_a_cluster = "tests/integration/spark_tasks/test_publish_table.py::test_a[changed-cluster]"
    assert group_of(on_a_cluster) == "cluster"


def test_uncounted_lines_are_traced_by_nothing() -> None:
    before = sys.gettrace()
    with uncounted():
        assert sys.gettrace() is None
    assert type(sys.gettrace()) is type(before)


def reported(
    name: str, seconds: float, *marks: str, when: Literal["setup", "call"] = "call"
) -> pytest.TestReport:
    keywords: dict[str, Literal[1]] = dict.fromkeys((name, "tests", *marks), 1)
    place = (f"tests/{name}.py", 1, name)
    return pytest.TestReport(name, place, keywords, "passed", None, when, duration=seconds)


def test_a_long_test_is_listed_unless_a_mark_says_why_it_is_long() -> None:
    long = BUDGET_SECONDS + 1
    reports = [
        reported("test_quick", BUDGET_SECONDS),
        reported("test_long", long, "servers"),
        reported("test_longer", long + 5),
        reported("test_with_servers", long, when="setup"),
        *(reported(f"test_{mark}", long, mark) for mark in MAY_BE_LONG),
        pytest.PytestWarning("no test"),
    ]
    assert over_budget(reports) == [(long + 5, "test_longer"), (long, "test_long")]


def test_an_only_proof_says_of_what() -> None:
    """A mark without a reason says no more than none."""
    mark = "pytest.mark.only_proof"
    for module, tree in trees_with(mark):
        given = [
            node.args
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == mark
        ]
        bare = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        assert len(given) == sum(ast.unparse(node) == mark for node in bare), module
        assert all(len(args) == 1 and ast.literal_eval(args[0]) for args in given), module


def test_every_marker_has_one_text_in_the_page_and_in_the_project() -> None:
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text("utf-8"))
    texts = dict(
        each.split(": ", 1) for each in project["tool"]["pytest"]["ini_options"]["markers"]
    )
    page = (TESTS.parent / "docs" / "testing.md").read_text("utf-8")
    for marker in ("slow", "soak"):
        assert f"| `{marker}` | {texts[marker]} |" in page
    for marker in texts:
        assert f"`{marker.partition('(')[0]}" in page
