from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perago.errors import DefinitionError
from perago.tasks.discover import inspect_targets, load_tasks

HEAD = """
from pathlib import Path
from pydantic import BaseModel
from perago import task

class P(BaseModel): ...
class R(BaseModel): ...
"""
GOOD = """
@task(name="{0}", owner_email="data@example.com")
def {0}(params: P) -> R: ...
"""
BAD = """
@task(name="{0}", owner_email="nobody")
def {0}(params: int) -> R: ...
"""
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module into the current folder; all are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(text))

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def lines_of(*targets: str) -> list[str]:
    return [str(problem) for problem in inspect_targets(targets).problems]


def test_tasks_come_in_the_order_of_targets_and_of_the_module(write: Write) -> None:
    write("one", GOOD.format("b") + GOOD.format("a"))
    write("two", GOOD.format("c"))
    assert [task.name for task in load_tasks(["two", "one"])] == ["c", "b", "a"]
    assert [task.name for task in load_tasks(["one:a", "two:c", "one:a"])] == ["a", "c"]


def test_the_current_folder_is_importable_and_an_unknown_module_says_so(write: Write) -> None:
    write("one", GOOD.format("a"))
    assert load_tasks(["one"])
    (problem,) = lines_of("nowhere.at_all")
    assert "no module named 'nowhere'" in problem
    assert str(Path.cwd()) in problem


def test_problems_of_all_tasks_of_all_modules_are_reported_at_once(write: Write) -> None:
    write("one", BAD.format("a") + GOOD.format("good") + BAD.format("b"))
    write("two", BAD.format("c"))
    found = inspect_targets(["one", "missing", "two", "one"])
    assert [problem.task for problem in found.problems] == ["a", "a", "b", "b", "", "c", "c"]
    assert [task.name for task in found.tasks] == ["good"]
    first_line = (HEAD + BAD).splitlines().index('@task(name="{0}", owner_email="nobody")') + 1
    assert str(found.problems[0]).startswith(f"one.py:{first_line}: task 'a': ")
    with pytest.raises(DefinitionError) as caught:
        load_tasks(["one", "two"])  # imported before, and no better for it
    assert len(str(caught.value).splitlines()) == 6


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import nothing_like_it", "it needs 'nothing_like_it', which is not installed"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def (:", "is not valid Python"),
        ("@task\ndef f(params: P) -> R: ...", "TypeError: task() takes 0 positional arguments"),
        ("@task(name='x')\ndef f(params: P) -> R: ...", "missing 1 required keyword-only argument"),
    ],
)
def test_a_module_that_fails_on_import_is_a_problem_with_its_line(
    write: Write, text: str, problem: str
) -> None:
    write("broken", text)
    (found,) = lines_of("broken")
    assert problem in found
    assert found.startswith(f"broken.py:{len(HEAD.splitlines()) + 1}: module 'broken'")


def test_problems_noted_before_a_module_fails_are_kept(write: Write) -> None:
    write("broken", BAD.format("a") + "1 / 0")
    assert len(lines_of("broken")) == 3


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("tasks.py", "write tasks"),
        ("./jobs/tasks.py", "write jobs.tasks"),
        ("jobs/tasks", "write jobs.tasks"),
        ("", "write MODULE or MODULE:task"),
        (".tasks", "write MODULE or MODULE:task"),
        ("my-tasks", "write MODULE or MODULE:task"),
        (":name", "write MODULE or MODULE:task"),
    ],
)
def test_what_is_no_name_of_a_module_is_answered_with_one(target: str, advice: str) -> None:
    (problem,) = lines_of(target)
    assert problem.endswith(advice) or f"{advice}," in problem


def test_a_task_that_is_not_there_is_answered_with_those_that_are(write: Write) -> None:
    write("one", GOOD.format("a") + GOOD.format("b"))
    assert lines_of("one:c") == ["module 'one' has no task 'c'; it has: a, b"]
    assert lines_of("one:") == ["module 'one' is given with an empty task name; it has: a, b"]


def test_a_module_without_tasks_says_so(write: Write) -> None:
    write("one", "")
    assert lines_of("one") == ["module 'one' has no function decorated with @task"]


def test_two_tasks_of_one_name_are_a_problem_in_one_module_and_over_two(write: Write) -> None:
    write("one", GOOD.format("a") + GOOD.format("a").replace("def a", "def other"))
    write("two", GOOD.format("a"))
    (within,) = lines_of("one")
    assert "the name is taken by another task, a (line 9)" in within
    write("three", GOOD.format("a"))
    (between,) = lines_of("two", "three")
    assert between.startswith("three.py:")


def test_a_task_imported_from_another_module_is_the_same_task(write: Write) -> None:
    write("one", GOOD.format("a"))
    write("two", "from one import a, a as again\n")
    assert [task.name for task in load_tasks(["one", "two"])] == ["a"]


def test_a_decorator_above_task_would_never_run_and_is_a_problem(write: Write) -> None:
    write(
        "one",
        """
        import functools
        def timed(function):
            @functools.wraps(function)
            def inner(*args): return function(*args)
            return inner

        @timed
        @task(name="a", owner_email="data@example.com")
        def a(params: P) -> R: ...
        """,
    )
    (problem,) = lines_of("one")
    assert "another decorator stands above @task" in problem


def test_models_that_cannot_be_a_contract_are_problems(write: Write) -> None:
    write(
        "one",
        """
        from collections.abc import Callable
        from pydantic import RootModel
        class Odd(BaseModel):
            call: Callable[[int], int]
        class Late(BaseModel):
            other: "Missing"
        class Many(RootModel[list[int]]): ...

        @task(name="odd", owner_email="data@example.com")
        def odd(params: Odd) -> R: ...
        @task(name="late", owner_email="data@example.com")
        def late(params: P) -> Late: ...
        @task(name="many", owner_email="data@example.com")
        def many(params: Many) -> Many: ...
        """,
    )
    odd, late, many = lines_of("one")
    assert "params model Odd has no JSON Schema" in odd
    assert "result model Late has no JSON Schema" in late
    assert "params model Many does not take a JSON object" in many


def test_a_model_may_wait_for_a_class_that_comes_later_in_the_module(write: Write) -> None:
    write(
        "one",
        """
        class Early(BaseModel):
            other: "Later"
        @task(name="a", owner_email="data@example.com")
        def a(params: Early) -> R: ...
        class Later(BaseModel):
            number: int
        """,
    )
    assert lines_of("one") == []
