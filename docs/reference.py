"""Write the reference from the code: the page of options, and the tables of settings and metrics.

Run it after a change of the command line, a setting or a metric; a test compares the pages with
the code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from perago.cli import app
from perago.observability.metrics import WorkerMetrics
from perago.protocol.events import PhaseEvent
from perago.settings import Settings
from perago.settings.model import variable_of

DOCS = Path(__file__).parent
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


def options(_page: str = "") -> str:
    """The page of options."""
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


def settings(page: str) -> str:
    """The page of the configuration, with its table of settings."""
    rows = (
        f"| `{variable_of(name)}` | `{name.replace('_', '-')}` | {_default(name)} "
        f"| {field.description} |"
        for name, field in Settings.model_fields.items()
    )
    return _with_rows(page, "| variable | key in a file | default | meaning |", rows)


def _default(name: str) -> str:
    if name in {"workspace_root", "object_cache", "spark_logs"}:
        return "per user"
    default = Settings.model_fields[name].default
    if default is None:
        return "-"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def metrics(page: str) -> str:
    """The page of metrics, with its table of what is counted."""
    worker = WorkerMetrics(["t"])
    # Those with labels of their own appear with the first value.
    worker.observe("t", PhaseEvent("phase_ended", "publish", 1.0, {"how": "merged"}))
    worker.set_publish_budget("t", 5.0)
    rows = map(_metric, worker.registry.collect())
    return _with_rows(page, "| name | type | labels | meaning |", rows)


def _metric(family: Any) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    used = family.samples[0].labels.keys() - {"le"}
    labels = ", ".join(f"`{label}`" for label in sorted(used, key="task".__ne__)) or "-"
    return f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


def _with_rows(page: str, head: str, rows: Iterable[str]) -> str:
    """The page with these rows in the table below ``head``."""
    before, found, rest = page.partition(f"{head}\n")
    if not found:
        raise ValueError(f"the page has no table {head!r}")
    line, _, after = rest.partition("\n\n")
    return before + found + "\n".join([line.partition("\n")[0], *rows]) + "\n\n" + after


PAGES: dict[str, Callable[[str], str]] = {
    "cli-options.md": options,
    "configuration.md": settings,
    "metrics.md": metrics,
}


def main() -> int:
    """Write the pages."""
    for name, write in PAGES.items():
        page = DOCS / name
        page.write_text(write(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
