"""``perago register``: put the TaskDefs of modules into Conductor."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.extract import Targets
from perago.errors import BackendRefusedError

if TYPE_CHECKING:
    from perago.conductor.taskdefs import ConductorTaskDefs
    from perago.tasks.drift import Difference


def register(
    targets: Targets,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
) -> None:
    """Create or update the TaskDefs of tasks in Conductor, and show what changes."""
    from perago.conductor.taskdefs import ConductorTaskDefs
    from perago.settings import load_settings
    from perago.tasks.discover import load_tasks
    from perago.tasks.taskdef import build_taskdef, taskdef_warnings
    from perago.wiring.connections import conductor_connection

    definitions = load_tasks(targets)
    with closing(ConductorTaskDefs(conductor_connection(load_settings()))) as conductor:
        for definition in definitions:
            for warning in taskdef_warnings(definition):
                output.warn(warning)
            _register_one(conductor, build_taskdef(definition), dry_run=dry_run)


def _register_one(conductor: ConductorTaskDefs, defined: dict[str, Any], *, dry_run: bool) -> None:
    from perago.tasks.drift import compare_taskdefs, updated_taskdef

    name = defined["name"]
    registered = conductor.get(name)
    if registered is None:
        if not dry_run:
            conductor.put(defined, exists=False)
            _read_back(conductor, defined)
        output.say(f"{name}: {'would be created' if dry_run else 'created'}")
        return
    differences = compare_taskdefs(defined, registered)
    if not differences:
        output.say(f"{name}: unchanged")
        return
    if not dry_run:
        conductor.put(updated_taskdef(defined, registered), exists=True)
        _read_back(conductor, defined)
    output.say(f"{name}: {'would be updated' if dry_run else 'updated'}")
    for difference in differences:
        output.say(f"  {describe(difference)}")


def describe(difference: Difference) -> str:
    """One difference on one line, old value first."""
    old, new = output.short(difference.registered), output.short(difference.defined)
    return f"{difference.path}: {old} -> {new}"


def _read_back(conductor: ConductorTaskDefs, defined: dict[str, Any]) -> None:
    """A 200 says that the request was understood; only reading says what is stored."""
    from perago.tasks.drift import compare_taskdefs

    left = compare_taskdefs(defined, conductor.get(defined["name"]) or {})
    if left:
        raise BackendRefusedError(
            f"Conductor accepted TaskDef {defined['name']!r} but stored something else:\n"
            + "\n".join(f"  {describe(difference)}" for difference in left),
            hint="Find out what rewrites TaskDefs on the server, or who registered it meanwhile.",
        )
