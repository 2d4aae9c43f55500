"""``perago config``: what is set, and where that comes from."""

from __future__ import annotations

import typer

from perago.cli import output
from perago.cli.json_option import AsJson

config_app = typer.Typer(
    rich_markup_mode=None,
    name="config",
    help="See the settings and where they come from.",
    no_args_is_help=True,
)


@config_app.callback()
def _root() -> None:
    """Keep `perago config` a group of commands."""


@config_app.command()
def show(
    as_json: AsJson = False,
) -> None:
    """Print each setting with its origin; secrets are masked."""
    from perago.settings import read_settings

    loaded = read_settings()
    values = loaded.values()
    for warning in loaded.warnings:
        output.note(f"warning: {warning}")
    if as_json:
        output.emit_json(
            {
                "settings": [
                    {
                        "name": item.field,
                        "variable": item.variable,
                        "value": item.shown,
                        "origin": item.origin,
                    }
                    for item in values
                ],
                "warnings": list(loaded.warnings),
            }
        )
        return
    rows = [
        (item.variable, "-" if item.shown is None else item.shown, item.origin) for item in values
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for variable, value, origin in rows:
        output.say(f"{variable:<{widths[0]}}  {value:<{widths[1]}}  {origin}")
