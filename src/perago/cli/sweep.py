"""``perago sweep``: remove folders that dead executions left below the workspace root."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.json_option import AsJson

_UNITS = {"m": 60, "h": 3600, "d": 86_400}
# An attempt that runs on another host must not look abandoned.
_LEAST_SECONDS = 3600


def sweep(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Also folders of other hosts in which nothing changed for AGE: 7d, 12h, 90m.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without it, only list.")] = False,
    as_json: AsJson = False,
) -> None:
    """List or remove the folders of executions that are over, below PERAGO_WORKSPACE_ROOT."""
    from perago.errors import ConfigurationError
    from perago.settings import load_settings
    from perago.transfer.sweep import sweep as sweep_root

    root = load_settings().workspace_root
    if root.exists() and not root.is_dir():
        raise ConfigurationError(
            f"PERAGO_WORKSPACE_ROOT names {root}, which is not a folder",
            hint="Set it to the folder that the workers use.",
        )
    age = _seconds(older_than) if older_than is not None else None
    report = sweep_root(root, other_hosts_after=age, dry_run=not yes)
    if as_json:
        output.emit_json(
            {
                "root": str(root),
                "dry_run": not yes,
                "folders": [
                    {"path": str(entry.path), "fate": entry.fate.value, "reason": entry.reason}
                    for entry in report.entries
                ],
            }
        )
    else:
        for entry in report.entries:
            why = f": {entry.reason}" if entry.reason else ""
            output.say(f"{entry.fate.value}: {entry.path}{why}")
        if not report.entries:
            output.note(f"there are no folders in {root}")
        elif not yes:
            output.note("nothing was removed; run again with --yes to remove what is removable")
    if report.failures:
        raise typer.Exit(1)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6})([mhd])", text.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if seconds < _LEAST_SECONDS:
        raise typer.BadParameter(
            "--older-than: write an age of one hour or more, longer than any attempt runs: 7d"
        )
    return seconds
