"""The option ``--json``, and options whose value is a JSON object or a file with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def read_json_object(option: str, text: str) -> dict[str, Any]:
    """Read the value of an option: JSON, or ``@`` and the path of a file."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{option}: cannot read {text[1:]!r}: {error}") from None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} is not JSON: {error}") from None
    except RecursionError:
        raise typer.BadParameter(f"{option} is nested too deeply") from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{option} must be a JSON object, not {type(value).__name__}")
    return value
