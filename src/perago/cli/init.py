"""``perago init``: write a project that runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The folder, the repository and the workflow.")
    ],
    spark: Annotated[
        bool, typer.Option("--spark", help="Make the second task a Spark task.")
    ] = False,
) -> None:
    """Write a folder with two tasks, a test, a workflow and sample data."""
    from perago.operations.project import create_project

    for file in create_project(Path(name), spark=spark):
        output.note(f"wrote {name}/{file}")
    output.say(f"cd {name}, and read README.md: it has the commands from here to a commit")
