"""``perago extract``: the TaskDefs of modules as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.completion import complete_target

Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="MODULE[:task]…",
        help="Modules with tasks; the current folder counts.",
        autocompletion=complete_target,
    ),
]


def extract(
    targets: Targets,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write there, not to stdout."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object, with the TaskDefs as a list in it."),
    ] = False,
) -> None:
    """Print the TaskDefs of tasks, with the JSON Schemas of their params and results."""
    from perago.settings import load_settings
    from perago.tasks.taskdef import build_taskdef, taskdef_warnings
    from perago.wiring.tasks import load_tasks

    definitions = load_tasks(load_settings(), targets)
    for definition in definitions:
        for warning in taskdef_warnings(definition):
            output.warn(warning)
    taskdefs = [build_taskdef(definition) for definition in definitions]
    if file is not None:
        output.write_file(file, output.json_text(taskdefs))
    if as_json:
        written = str(file) if file is not None else None
        output.emit_json({"taskdefs": taskdefs, "file": written})
    elif file is None:
        output.emit_value(taskdefs)
