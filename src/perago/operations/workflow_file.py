"""Read a workflow definition from a file, and what its expressions refer to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.errors import DefinitionError
from perago.protocol.json_value import MAX_DEPTH, is_too_deep

_EXPRESSION = re.compile(r"\$\{([^}]*)\}")
# Each loop is followed twice in a check, so the time doubles with each level.
_MOST_LEVELS = 12
_HINT = "Correct the file, then run `perago workflow check FILE`."

# Types of steps that decide at run time which tasks they run.
DECIDED_LATER = frozenset({"FORK_JOIN_DYNAMIC", "DYNAMIC", "SUB_WORKFLOW", "START_WORKFLOW"})
# That Conductor does itself, and that wait for nothing but other steps.
DONE_BY_CONDUCTOR = frozenset(
    {
        *("FORK_JOIN", "JOIN", "EXCLUSIVE_JOIN", "SWITCH", "DECISION", "SET_VARIABLE"),
        *("INLINE", "LAMBDA", "JSON_JQ_TRANSFORM", "NOOP"),
    }
)
# All that Conductor knows. It takes any other for one that workers poll for.
STEP_TYPES = frozenset(
    {
        *("SIMPLE", "DO_WHILE", "TERMINATE", "WAIT", "HUMAN", "EVENT", "HTTP"),
        *("KAFKA_PUBLISH", "USER_DEFINED", *DONE_BY_CONDUCTOR, *DECIDED_LATER),
    }
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow definition, in Conductor's own spelling."""

    name: str
    version: int
    definition: Json

    @property
    def tasks(self) -> list[Any]:
        found: list[Any] = self.definition["tasks"]
        return found

    def inputs(self) -> dict[str, str]:
        """Return the names below ``workflow.input`` that are used, each with its first user."""
        found: dict[str, str] = {}
        for expression in expressions(self.definition):
            scope, _, rest = expression.partition(".")
            kind, _, path = rest.partition(".")
            if (scope, kind) == ("workflow", "input") and path:
                found.setdefault(re.split(r"[.\[]", path)[0], expression)
        return found

    def workspace_inputs(self) -> list[tuple[str, ...]]:
        """Return the paths below ``workflow.input`` that steps take as workspaces.

        ``*`` stands for every key, where a step takes all its inputs from one place.
        """
        found: dict[tuple[str, ...], None] = {}
        for step in all_steps(self.tasks):
            mapped = step.get("inputParameters")
            if not isinstance(mapped, dict):
                continue
            named = mapped.get("inputs")
            values = [mapped.get("workspace"), *(named.values() if isinstance(named, dict) else ())]
            paths = [_input_path(value) for value in values]
            if whole := _input_path(named):
                paths.append((*whole, "*"))
            found |= dict.fromkeys(path for path in paths if path)
        return list(found)


def _input_path(value: Any) -> tuple[str, ...]:
    """Split ``${workflow.input.a.b}`` into ``a`` and ``b``; empty for anything else."""
    scope, *path = (whole_expression(value) or "").split(".")
    return tuple(path[1:]) if scope == "workflow" and path[:1] == ["input"] else ()


def read_workflow(file: Path) -> WorkflowFile:
    """Read a definition; raises ``DefinitionError`` for what Conductor cannot take as one."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DefinitionError(f"cannot read {str(file)!r}: {error.strerror}", hint=_HINT) from None
    except (ValueError, RecursionError) as error:
        raise DefinitionError(f"{file} is not JSON: {error}", hint=_HINT) from None
    problem = _shape_problem(value)
    if problem is not None:
        raise DefinitionError(f"{file}: {problem}", hint=_HINT)
    return WorkflowFile(value["name"], value.get("version", 1), value)


def _shape_problem(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"a workflow definition is a JSON object, not {type(value).__name__}"
    name, version, tasks = value.get("name"), value.get("version", 1), value.get("tasks")
    if not isinstance(name, str) or not name:
        return 'the definition needs "name": "…"'
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        return '"version" must be a whole number, 1 or more'
    if not isinstance(tasks, list) or not tasks:
        return 'the definition needs "tasks": […], a list of steps'
    if is_too_deep(value):
        return f"it is nested more than {MAX_DEPTH} levels deep"
    if _levels(tasks) > _MOST_LEVELS:
        return f"forks, switches and loops are nested more than {_MOST_LEVELS} levels deep"
    return None


def _levels(tasks: list[Any]) -> int:
    """How deep steps stand in each other: 1 where there are no forks, switches and loops."""
    steps = (step for step in tasks if isinstance(step, dict))
    return 1 + max((_levels(inner) for step in steps for inner in branches_of(step)), default=0)


def expressions(value: Any) -> Iterator[str]:
    """Yield what is inside each ``${…}`` of a JSON value, at any depth."""
    if isinstance(value, str):
        yield from _EXPRESSION.findall(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from expressions(item)
    elif isinstance(value, list):
        for item in value:
            yield from expressions(item)


def whole_expression(value: Any) -> str | None:
    """Return what is inside a text that is one ``${…}`` and nothing else."""
    found = _EXPRESSION.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else None


def has_expression(value: Any) -> bool:
    """Return whether Conductor puts something into a value when the workflow runs."""
    return next(expressions(value), None) is not None


def branches_of(step: Json) -> list[list[Any]]:
    """Return the lists of steps inside a step: of a fork, a switch or a loop."""
    match step.get("type"):
        case "FORK_JOIN":
            return _lists(step.get("forkTasks"))
        case "SWITCH" | "DECISION":
            cases = step.get("decisionCases")
            found = _lists(list(cases.values()) if isinstance(cases, dict) else [])
            default = step.get("defaultCase")
            return [*found, default if isinstance(default, list) else []]
        case "DO_WHILE":
            return _lists([step.get("loopOver")])
    return []


def shape_problems(step: Json) -> Iterator[str]:
    """Yield what is not a list of steps where Conductor wants one."""
    match step.get("type"):
        case "FORK_JOIN":
            forks = step.get("forkTasks")
            if not isinstance(forks, list) or _lists(forks) != forks:
                yield 'forkTasks must be a list of lists of steps: "forkTasks": [[…], […]]'
        case "SWITCH" | "DECISION":
            cases = step.get("decisionCases") or {}
            if not isinstance(cases, dict) or _lists(list(cases.values())) != [*cases.values()]:
                yield 'decisionCases must hold a list of steps for each case: {"CASE": […]}'
            if not isinstance(step.get("defaultCase") or [], list):
                yield "defaultCase must be a list of steps"
        case "DO_WHILE":
            if not isinstance(step.get("loopOver"), list):
                yield "loopOver must be a list of steps"


def all_steps(tasks: list[Any]) -> Iterator[Json]:
    """Yield every step at any depth, in the order of the file."""
    for step in tasks:
        if isinstance(step, dict):
            yield step
            for inner in branches_of(step):
                yield from all_steps(inner)


def stray_items(tasks: list[Any]) -> Iterator[Any]:
    """Yield what stands in a list of steps, at any depth, and is no step."""
    lists = [tasks, *(inner for step in all_steps(tasks) for inner in branches_of(step))]
    yield from (item for steps in lists for item in steps if not isinstance(item, dict))


def worker_tasks(tasks: list[Any]) -> dict[str, Json]:
    """Return the tasks that workers run, by name, each with its first step."""
    found: dict[str, Json] = {}
    for step in all_steps(tasks):
        if step.get("type", "SIMPLE") == "SIMPLE" and isinstance(step.get("name"), str):
            found.setdefault(step["name"], step)
    return found


def _lists(value: Any) -> list[list[Any]]:
    return [item for item in value if isinstance(item, list)] if isinstance(value, list) else []
