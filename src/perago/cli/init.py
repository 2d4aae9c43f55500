"""``perago init``: write a project that runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.json_option import AsJson


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The folder, the repository and the workflow.")
    ],
    spark: Annotated[
        bool, typer.Option("--spark", help="Make the second task a Spark task.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a folder with two tasks, a test, a workflow and sample data."""
    from perago.operations.project import create_project

    files = create_project(Path(name), spark=spark)
    if as_json:
        output.emit_json({"folder": name, "files": files})
        return
    for file in files:
        output.note(f"wrote {name}/{file}")
    output.say(f"cd {name}, and read README.md: it has the commands from here to a commit")
