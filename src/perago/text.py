"""Cut and mask text for people: one shortener, one mask."""

from __future__ import annotations

import json
from typing import Any

MASK = "********"
_LONGEST_VALUE = 80


def shorten(text: str, limit: int) -> str:
    """Cut a text to ``limit`` characters, the last one an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shorten_middle(text: str, limit: int) -> str:
    """Cut the middle out of a text whose beginning and end matter, like a traceback."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit} characters left out …\n"
    half = max((limit - len(mark)) // 2, 0)
    return text[: limit - len(mark) - half] + mark + text[len(text) - half :]


def encodable(text: str) -> str:
    """Escape what UTF-8 cannot encode: lone halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()


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
