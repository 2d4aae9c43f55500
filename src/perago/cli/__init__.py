"""Run the command line.

Command modules import what they run inside the command, so that ``perago --help`` loads neither
pydantic nor pyspark.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from perago.cli import output
from perago.cli.attempt import attempt_app
from perago.cli.budget import budget
from perago.cli.cache import cache_app
from perago.cli.check import check
from perago.cli.completion import words_of_bash
from perago.cli.config import config_app
from perago.cli.dev import dev_app
from perago.cli.doctor import doctor
from perago.cli.extract import extract
from perago.cli.fence import fence_app
from perago.cli.gc import gc
from perago.cli.history import history
from perago.cli.init import init
from perago.cli.register import register
from perago.cli.restore import restore
from perago.cli.run import run
from perago.cli.start import start
from perago.cli.sweep import sweep
from perago.cli.watch import watch
from perago.cli.workflow import workflow_app
from perago.cli.workspace import workspace_app
from perago.errors import PeragoError
from perago.progress import drop
from perago.signals import heeded_stops

EXIT_BUG = 70
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_HUNG_UP = 128 + signal.SIGHUP
EXIT_TERMINATED = 128 + signal.SIGTERM

app = typer.Typer(
    name="perago",
    help="Run typed Python functions as transactions over LakeFS, driven by Conductor.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: loading rich takes longer than everything else together.
    rich_markup_mode=None,
    # Inherited by every command.
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=True,
)
app.add_typer(attempt_app, name="attempt")
app.add_typer(cache_app, name="cache")
app.add_typer(config_app, name="config")
app.add_typer(dev_app, name="dev")
app.command()(check)
app.command()(doctor)
app.command()(extract)
app.command()(budget)
app.command()(gc)
app.command()(history)
app.command()(init)
app.command()(register)
app.command()(restore)
app.command()(run)
app.command()(start)
app.command()(sweep)
app.command()(watch)
app.add_typer(fence_app, name="fence")
app.add_typer(workflow_app, name="workflow")
app.add_typer(workspace_app, name="workspace")


def _show_version(wanted: bool) -> None:
    if wanted:
        import perago

        output.say(f"perago {perago.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Declare the options of `perago` itself."""


def main() -> NoReturn:
    """Run the command line and turn errors into exit codes."""
    terminate = _Termination()
    for number in heeded_stops():
        if number != signal.SIGINT:  # Python's own handler raises KeyboardInterrupt
            signal.signal(number, terminate)
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # In a locale that lacks a character, a result is better than a traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        with words_of_bash():
            app(standalone_mode=True)
    except PeragoError as error:
        output.explain(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001  anything else is a bug
        from perago.protocol.outcome import machine_error

        if (known := machine_error(error) or output.path_error(error)) is None:
            output.report_bug(error)
            sys.exit(EXIT_BUG)
        output.explain(known)
        drop(sys.stdout)
        sys.exit(known.exit_code)
    sys.exit(0)


def _open_standard_streams() -> None:
    """Let what the caller has closed lead nowhere.

    Left closed, its number would go to the next file or socket, and its lines with it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number: the one that was closed.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


class _Termination:
    """Handles a signal by an exception, so that the command cleans up before it ends."""

    def __init__(self) -> None:
        self._came = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        # The kernel and the shell both tell of a closed terminal: once is enough to clean up.
        if self._came and number == signal.SIGHUP:
            return
        self._came = True
        raise SystemExit(EXIT_HUNG_UP if number == signal.SIGHUP else EXIT_TERMINATED)
