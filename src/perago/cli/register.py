"""``perago register``: put the TaskDefs of modules into Conductor."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.check import difference_document
from perago.cli.extract import Targets
from perago.cli.json_option import AsJson

if TYPE_CHECKING:
    from perago.operations.registration import Registration


def register(
    targets: Targets,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create or update the TaskDefs of tasks in Conductor, and show what changes."""
    from perago.conductor.taskdefs import ConductorTaskDefs
    from perago.operations import registration
    from perago.settings import load_settings
    from perago.tasks.taskdef import taskdef_warnings
    from perago.wiring.connections import conductor_connection
    from perago.wiring.tasks import load_tasks

    settings = load_settings()
    definitions = load_tasks(settings, targets)
    registered: list[registration.Registration] = []
    with closing(ConductorTaskDefs(conductor_connection(settings))) as conductor:
        for definition in definitions:
            for warning in taskdef_warnings(definition):
                output.warn(warning)
            done = registration.register(conductor, definition, dry_run=dry_run)
            registered.append(done)
            if as_json:
                continue
            would_be = "would be " if dry_run and done.action != "unchanged" else ""
            output.say(f"{done.task}: {would_be}{done.action}")
            for difference in done.differences:
                output.say(f"  {registration.describe(difference)}")
    if as_json:
        output.emit_json({"dry_run": dry_run, "tasks": [_as_document(it) for it in registered]})


def _as_document(done: Registration) -> dict[str, Any]:
    differences = [difference_document(it) for it in done.differences]
    return {"task": done.task, "action": done.action, "differences": differences}
