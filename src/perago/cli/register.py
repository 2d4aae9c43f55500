"""``perago register``: put the TaskDefs of modules into Conductor."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.extract import Targets


def register(
    targets: Targets,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
) -> None:
    """Create or update the TaskDefs of tasks in Conductor, and show what changes."""
    from perago.conductor.taskdefs import ConductorTaskDefs
    from perago.operations import registration
    from perago.settings import load_settings
    from perago.tasks.discover import load_tasks
    from perago.tasks.taskdef import taskdef_warnings
    from perago.wiring.connections import conductor_connection

    definitions = load_tasks(targets)
    with closing(ConductorTaskDefs(conductor_connection(load_settings()))) as conductor:
        for definition in definitions:
            for warning in taskdef_warnings(definition):
                output.warn(warning)
            done = registration.register(conductor, definition, dry_run=dry_run)
            would_be = "would be " if dry_run and done.action != "unchanged" else ""
            output.say(f"{done.task}: {would_be}{done.action}")
            for difference in done.differences:
                output.say(f"  {registration.describe(difference)}")
