"""Find the tasks of a module by name, with the current folder importable."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from perago.errors import DefinitionError
from perago.tasks.definition import (
    Problem,
    TaskDefinition,
    collecting_problems,
    definition_of,
)


def load_tasks(targets: Sequence[str]) -> list[TaskDefinition]:
    """The tasks named by ``MODULE`` or ``MODULE:task``, in order; raises with every problem."""
    tasks: dict[str, TaskDefinition] = {}
    problems: list[str] = []
    for target in targets:
        module_name, _, wanted = target.partition(":")
        found, trouble = inspect_module(module_name)
        problems += [str(problem) for problem in trouble]
        for definition in found:
            if wanted and definition.name != wanted:
                continue
            known = tasks.setdefault(definition.name, definition)
            if known.function is not definition.function:
                problems.append(f"two tasks are named {definition.name!r}")
        if wanted and not trouble and wanted not in tasks:
            names = ", ".join(item.name for item in found) or "none"
            problems.append(f"module {module_name!r} has no task {wanted!r}; it has: {names}")
        if not wanted and not found and not trouble:
            problems.append(f"module {module_name!r} has no function decorated with @task")
    if problems:
        raise DefinitionError("\n".join(problems))
    return list(tasks.values())


def inspect_module(name: str) -> tuple[list[TaskDefinition], list[Problem]]:
    """The good tasks of a module and the problems of the others."""
    with collecting_problems() as problems:
        module = _import(name)
    return _tasks_of(module), problems


def _tasks_of(module: ModuleType) -> list[TaskDefinition]:
    definitions = [definition_of(value) for value in vars(module).values()]
    unique: dict[str, TaskDefinition] = {}
    for definition in definitions:
        if definition is not None:
            unique.setdefault(definition.name, definition)
    return list(unique.values())


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(missing + "."):
            raise DefinitionError(
                f"no module named {missing!r} in {here} or on the Python path",
                hint="Give the module's name without .py, and run from the folder it is in.",
            ) from None
        raise DefinitionError(
            f"module {name!r} cannot be imported: it needs {missing!r}, which is not installed"
        ) from error
    except Exception as error:
        raise DefinitionError(
            f"module {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
