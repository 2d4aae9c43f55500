"""Cut and mask text for people: one shortener, one mask."""

from __future__ import annotations

import json
from typing import Any

MASK = "********"
_LONGEST_VALUE = 80


def shorten(text: str, limit: int) -> str:
    """Cut a text to ``limit`` characters, the last one an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shorten_line(text: str, limit: int) -> str:
    """Put a text on one line and cut it to ``limit`` characters."""
    return shorten(" ".join(text.split()), limit)


def shorten_line_start(text: str, limit: int) -> str:
    """Put a text on one line and cut its beginning, for texts that end with what matters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else "…" + line[1 - limit :]


def shorten_value(value: Any, limit: int = _LONGEST_VALUE) -> str:
    """Write a value as JSON on one line, cut to ``limit`` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = repr(value)
    return shorten(text, limit)
