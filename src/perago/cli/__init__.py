"""The command line. Command modules import what they run inside the command, so that
``perago --help`` loads neither pyspark nor an SDK."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from perago.cli import output
from perago.cli.dev import dev_app
from perago.cli.gc import gc
from perago.cli.register import register
from perago.cli.start import start
from perago.errors import PeragoError

app = typer.Typer(
    name="perago",
    help="Run typed Python functions as transactions over LakeFS, driven by Conductor.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(dev_app, name="dev")
app.command()(gc)
app.command()(register)
app.command()(start)


@app.callback()
def _root() -> None:
    """Keep `perago` a group of commands."""


def main() -> NoReturn:
    """Run the command line and turn errors into exit codes."""
    try:
        app(standalone_mode=True)
    except PeragoError as error:
        output.explain(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)
