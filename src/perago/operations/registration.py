"""Register task definitions in Conductor, and compare them with what is registered there.

`perago register`, `perago start --register` and `perago check --connect` all use this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from perago.conductor.taskdefs import ConductorTaskDefs
from perago.errors import BackendRefusedError
from perago.tasks.definition import TaskDefinition
from perago.tasks.drift import Difference, breaks_contract, compare_taskdefs, updated_taskdef
from perago.tasks.taskdef import build_taskdef
from perago.text import shorten_value


@dataclass(frozen=True, slots=True)
class Comparison:
    """One task against Conductor; ``differences`` is None when it is not registered."""

    task: str
    differences: list[Difference] | None

    @property
    def is_error(self) -> bool:
        """Whether workflows may fail with what is registered."""
        return self.differences is None or breaks_contract(self.differences)

    @property
    def paths(self) -> str:
        """Which parts differ."""
        return ", ".join(difference.path for difference in self.differences or ())

    def describe_error(self) -> str:
        """Say why workflows may fail, for a comparison that :attr:`is_error`."""
        if self.differences is None:
            return f"task {self.task!r} is not registered in Conductor"
        return f"task {self.task!r} is registered with another contract: {self.paths}"


@dataclass(frozen=True, slots=True)
class Registration:
    """What registering one task changed, or would change."""

    task: str
    action: Literal["created", "updated", "unchanged"]
    differences: tuple[Difference, ...] = ()


def compare_with_conductor(conductor: ConductorTaskDefs, definition: TaskDefinition) -> Comparison:
    """Compare a task with its registered TaskDef."""
    registered = conductor.get(definition.name)
    differences = None
    if registered is not None:
        differences = compare_taskdefs(build_taskdef(definition), registered)
    return Comparison(definition.name, differences)


def register(
    conductor: ConductorTaskDefs, definition: TaskDefinition, *, dry_run: bool = False
) -> Registration:
    """Create or update a TaskDef and read it back; with ``dry_run``, change nothing."""
    name, defined = definition.name, build_taskdef(definition)
    registered = conductor.get(name)
    differences = compare_taskdefs(defined, registered) if registered is not None else []
    if registered is not None and not differences:
        return Registration(name, "unchanged")
    if not dry_run:
        taskdef = defined if registered is None else updated_taskdef(defined, registered)
        conductor.put(taskdef, exists=registered is not None)
        _read_back(conductor, defined)
    return Registration(name, "created" if registered is None else "updated", tuple(differences))


def describe(difference: Difference) -> str:
    """Write one difference on one line, the registered value first."""
    old, new = shorten_value(difference.registered), shorten_value(difference.defined)
    return f"{difference.path}: {old} -> {new}"


def _read_back(conductor: ConductorTaskDefs, defined: dict[str, Any]) -> None:
    """A 200 says that the request was understood; only reading says what is stored."""
    left = compare_taskdefs(defined, conductor.get(defined["name"]) or {})
    if left:
        raise BackendRefusedError(
            f"Conductor accepted TaskDef {defined['name']!r} but stored something else:\n"
            + "\n".join(f"  {describe(difference)}" for difference in left),
            hint="Find out what rewrites TaskDefs on the server, or who registered it meanwhile.",
        )
