"""Find the tasks of modules by name; modules of the current folder can be imported."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from perago.errors import DefinitionError
from perago.tasks.definition import (
    DefinitionProblem,
    TaskDefinition,
    collecting_problems,
    definition_of,
    problem_at,
    problems_of,
)
from perago.tasks.taskdef import contract_problems


@dataclass(frozen=True, slots=True)
class Inspection:
    """The valid tasks, and the problems of the others."""

    tasks: list[TaskDefinition] = field(default_factory=list)
    problems: list[DefinitionProblem] = field(default_factory=list)


def load_tasks(targets: Sequence[str]) -> list[TaskDefinition]:
    """Load the tasks named by ``MODULE`` or ``MODULE:task``, in order.

    Raises one ``DefinitionError`` with every problem.
    """
    inspection = inspect_targets(targets)
    if inspection.problems:
        raise DefinitionError("\n".join(map(str, inspection.problems)))
    return inspection.tasks


def inspect_targets(targets: Sequence[str]) -> Inspection:
    """Import every module once and collect its tasks and all problems."""
    modules: dict[str, Inspection] = {}
    chosen: dict[str, TaskDefinition] = {}
    problems: list[DefinitionProblem] = []
    for target in targets:
        name, colon, wanted = target.partition(":")
        if name not in modules:
            modules[name] = inspect_module(name)
            problems += modules[name].problems
        found = [task for task in modules[name].tasks if not wanted or task.name == wanted]
        if not modules[name].problems and (not found or (colon and not wanted)):
            problems.append(_nothing_found(name, wanted, modules[name].tasks, empty=bool(colon)))
        for definition in found:
            if chosen.setdefault(definition.name, definition) is not definition:
                problems.append(_same_name(definition, chosen[definition.name]))
    return Inspection(list(chosen.values()), problems)


def inspect_module(name: str) -> Inspection:
    """Import one module and collect its valid tasks and the problems of the others."""
    if problem := _name_problem(name):
        return Inspection(problems=[problem])
    with collecting_problems() as problems:
        module = _import(name, problems)
    if module is None:
        return Inspection(problems=problems)
    noted = [problem for value in list(vars(module).values()) for problem in problems_of(value)]
    found = Inspection(problems=list(dict.fromkeys([*problems, *noted])))
    for definition in _tasks_of(module, found.problems):
        texts = contract_problems(definition)
        found.problems.extend(
            problem_at(definition.function, definition.name, text) for text in texts
        )
        if not texts:
            found.tasks.append(definition)
    return found


def _tasks_of(module: ModuleType, problems: list[DefinitionProblem]) -> Iterator[TaskDefinition]:
    seen: list[TaskDefinition] = []
    for value in list(vars(module).values()):
        definition = definition_of(value)
        if definition is None or any(definition is other for other in seen):
            continue
        if value is not definition.function:
            text = "another decorator stands above @task and would never run: put @task on top"
            problems.append(problem_at(definition.function, definition.name, text))
            continue
        seen.append(definition)
        yield definition


def _import(name: str, problems: list[DefinitionProblem]) -> ModuleType | None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        # What a module prints on import must not mix with the result of the command.
        with redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        problems.append(_missing_module(name, error, here))
    except SyntaxError as error:
        text = f"module {name!r} is not valid Python: {error.msg}"
        problems.append(DefinitionProblem(error.filename or "", error.lineno or 0, "", text))
    except (Exception, SystemExit) as error:  # noqa: BLE001  a module may raise anything
        problems.append(_broken_module(name, error))
    return None


def _missing_module(name: str, error: ModuleNotFoundError, here: str) -> DefinitionProblem:
    missing = error.name or name
    if name == missing or name.startswith(missing + "."):
        text = (
            f"no module named {missing!r} in {here} or on the Python path: "
            "run from the folder it is in, or install it"
        )
        return DefinitionProblem("", 0, "", text)
    text = f"module {name!r} cannot be imported: it needs {missing!r}, which is not installed"
    return DefinitionProblem(*_last_line(error), "", text)


def _broken_module(name: str, error: BaseException) -> DefinitionProblem:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return DefinitionProblem(*_last_line(error), "", f"module {name!r} cannot be imported: {what}")


def _last_line(error: BaseException) -> tuple[str, int]:
    """Find the last line of the author's code in a traceback, not one of a library."""
    frames = [
        (frame.filename, frame.lineno or 0)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen importlib")
    ]
    own = [at for at in frames if "importlib" not in at[0] and "site-packages" not in at[0]]
    return (own or frames or [("", 0)])[-1]


def _name_problem(name: str) -> DefinitionProblem | None:
    if all(part.isidentifier() for part in name.split(".")) and not name.endswith(".py"):
        return None
    guess = name.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
    likely = bool(guess) and all(part.isidentifier() for part in guess.split("."))
    advice = f"write {guess}" if likely else "write MODULE or MODULE:task, as in an import"
    return DefinitionProblem("", 0, "", f"{name!r} is not the name of a module: {advice}")


def _nothing_found(
    module: str, wanted: str, tasks: Sequence[TaskDefinition], *, empty: bool
) -> DefinitionProblem:
    names = ", ".join(task.name for task in tasks)
    if not names:
        # A folder of that name without an __init__.py is a module to Python, and an empty one.
        is_folder = getattr(sys.modules.get(module), "__file__", "") is None
        advice = f": it is a folder; write {module}.MODULE" if is_folder else ""
        text = f"module {module!r} has no function decorated with @task{advice}"
        return DefinitionProblem("", 0, "", text)
    what = f"has no task {wanted!r}" if wanted or not empty else "is given with an empty task name"
    return DefinitionProblem("", 0, "", f"module {module!r} {what}; it has: {names}")


def _same_name(second: TaskDefinition, first: TaskDefinition) -> DefinitionProblem:
    other = problem_at(first.function, first.name, "")
    text = f"the name is taken by another task, {first.function.__qualname__} (line {other.line})"
    return problem_at(second.function, second.name, text + ": give each task its own")
