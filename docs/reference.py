"""Write docs/cli-options.md from the code: every command with its arguments and options.

Run it after a change of the command line; a test compares the page with the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from perago.cli import app

PAGE = Path(__file__).parent / "cli-options.md"
_HEAD = """# Every command and option

Written by `python docs/reference.py` from the code: what `perago COMMAND --help` prints, on one
page. What the commands do is in [the command line](cli.md), their exit codes are in
[the public surface](public-surface.md#commands).
"""


def commands(command: Any = None, path: str = "perago") -> Iterator[tuple[str, Any]]:
    """Each command with its path, in the order of their names."""
    command = command or typer.main.get_command(app)
    if not hasattr(command, "commands"):
        yield path, command
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from commands(child, f"{path} {name}")


def generate() -> str:
    """The text of the page."""
    return _HEAD + "".join(_section(path, command) for path, command in commands())


def _section(path: str, command: Any) -> str:
    text = " ".join((command.help or "").split())
    context = command.make_context(path, [], resilient_parsing=True)
    records = [item.get_help_record(context) for item in command.params if item.name != "help"]
    rows = [f"| `{_cell(names)}` | {_cell(meaning) or '-'} |" for names, meaning in records]
    table = "\n".join(["", "| argument or option | meaning |", "|---|---|", *rows, ""])
    return f"\n## {path}\n\n{text}\n{table if rows else ''}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write the page."""
    PAGE.write_text(generate(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
