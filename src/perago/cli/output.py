"""What a command shows: text for people, one JSON object for programs, errors with a way out.

Results go to stdout; progress, logs and errors go to stderr, so that ``--json`` can be piped.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from perago.errors import PeragoError


def emit_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def say(line: str = "") -> None:
    """Print one line of a result on stdout."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    """Print one line about what is going on, on stderr."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def explain(error: PeragoError) -> None:
    """Print an error with its code and what to do about it."""
    note(f"{error.code} {type(error).__name__}: {error}")
    note(f"Try: {error.hint}")
