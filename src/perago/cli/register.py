"""``perago register``: put the TaskDefs of a module into Conductor."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output


def register(
    modules: Annotated[list[str], typer.Argument(metavar="MODULE[:task]…", help="Task modules.")],
) -> None:
    """Create or update the TaskDefs of a module in Conductor."""
    from perago.conductor.taskdefs import ConductorTaskDefs
    from perago.settings import load_settings
    from perago.tasks.discover import load_tasks
    from perago.tasks.taskdef import build_taskdef
    from perago.worker.bootstrap import conductor_connection

    definitions = load_tasks(modules)
    taskdefs = ConductorTaskDefs(conductor_connection(load_settings()))
    for definition in definitions:
        exists = taskdefs.get(definition.name) is not None
        taskdefs.put(build_taskdef(definition), exists=exists)
        output.say(f"{definition.name}: {'updated' if exists else 'created'}")
